import time
from dataclasses import replace
from typing import Annotated

import typer

from orchestration.commands import options
from pipelines.config import recipe as recipe_of
from pipelines.settings import Runner
from schemas.configs import pick
from schemas.lake import Lake
from schemas.overrides import override


def build_command(
    dataset: Annotated[str, typer.Argument(help="Data set to build; `multilink settings` lists them.")],
    lake: options.LakePath,
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM_OPTION...]", help="Options of Beam.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Named build; the data set's own by default.")] = None,
    settings: options.Settings = None,
    runner: Annotated[str, typer.Option(help="local, portable, flink, spark or dataflow.")] = "local",
    workers: Annotated[int, typer.Option(help="Worker processes (local and portable).")] = 1,
    *,
    ask_again: Annotated[bool, typer.Option(help="Repeat requests that failed temporarily; reuse no version.")] = False,
    ask_again_all: Annotated[
        bool,
        typer.Option(help="The same, and repeat refused requests (403, 404), which are remembered otherwise."),
    ] = False,
    say: options.Progress,
) -> options.Summaries:
    """Build a version of a data set: scrape or read its source, and write shards with features.

    A second run fetches nothing again and writes the same bytes; refusals of hosts are remembered for days. Options
    of Beam follow after `--`.
    """
    config = override(recipe_of(dataset, recipe), settings or [])
    if ask_again_all:
        config = replace(config, http=replace(config.http, ask_again_before=time.time()))
    from pipelines.run import build_dataset, summary_lines

    summary = build_dataset(
        config,
        lake=Lake.at(lake),
        runner=pick({str(each): each for each in Runner}, runner, what="runner"),
        workers=workers,
        beam_options=beam_options or (),
        ask_again=ask_again or ask_again_all,
        say=say,
    )
    yield summary_lines(summary), summary
