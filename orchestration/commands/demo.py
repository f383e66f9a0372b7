from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import Console


def command(
    workspace: Annotated[Path, typer.Option(help="Folder that everything is written to.")] = Path("demo"),
    workers: Annotated[int, typer.Option(help="Worker processes of the build and of training.")] = 1,
    is_news: Annotated[
        bool, typer.Option("--news", help="Instead: a newsroom's archive in three languages, searched by four texts.")
    ] = False,
) -> options.Summaries:
    """Run the main job on the recorded web: scrape, build, train, evaluate, promote, link.

    Takes a few minutes on two cores; run again, it says what it reuses. Needs a clone of the repository.
    """
    from orchestration.demo.demo import main_job
    from orchestration.demo.news import newsroom

    yield from (newsroom if is_news else main_job)(workspace.absolute(), workers=workers, say=Console().say)
