from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    workspace: Annotated[Path, typer.Option(help="Folder to write everything to.")] = Path("demo"),
    workers: Annotated[int, typer.Option(help="Worker processes of the build.")] = 1,
    is_news: Annotated[
        bool,
        typer.Option(
            "--news", help="Instead: an archive of news in three languages, searched by four texts of an article."
        ),
    ] = False,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Run the main job on the recorded web: scrape, build, train, evaluate, promote, link.

    Takes a few minutes on two cores; a repeated run reuses what is there. Needs a clone of the repository.
    """
    from orchestration.demo.demo import main_job
    from orchestration.demo.news import newsroom

    yield from (newsroom if is_news else main_job)(workspace.absolute(), workers=workers, say=say)
