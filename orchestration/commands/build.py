from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import build
from pipelines.settings import Runner


def build_command(
    dataset: Annotated[str, typer.Argument(help="Data set to build; `multilink settings` lists them.")],
    lake: options.LakePath,
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM_OPTION...]", help="Options of Beam.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Named build; the data set's own by default.")] = None,
    settings: options.Settings = None,
    runner: Annotated[Runner, typer.Option(help="Where Beam runs.")] = Runner.LOCAL,
    workers: Annotated[int, typer.Option(help="Worker processes (local).")] = 1,
    *,
    ask_again: Annotated[
        bool, typer.Option(help="Repeat refused requests (403, 404), which are remembered otherwise.")
    ] = False,
    say: options.Progress,
) -> options.Summaries:
    """Build a version of a data set: scrape or read its source, and write shards with features.

    A second run repeats only requests that failed temporarily, and writes the same bytes; refusals of hosts are
    remembered for days. Options of Beam follow after `--`.
    """
    summary = build(
        say,
        dataset=dataset,
        recipe=recipe or "",
        settings=tuple(settings or ()),
        lake=lake,
        runner=runner,
        workers=workers,
        beam_options=tuple(beam_options or ()),
        ask_again=ask_again,
    )
    from pipelines.run import summary_lines

    yield summary_lines(summary), summary
