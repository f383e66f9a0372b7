"""All of it on this machine: the demo, what it drew, and Dagster with MLflow and the pages."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestration.commands import options
from schemas.messages import NotFoundError


def demo_command(
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

    Takes about a minute on two cores; a repeated run reuses existing data and models. Needs a clone of the repository.
    """
    from orchestration.demo.demo import main_job, newsroom

    yield from (newsroom if is_news else main_job)(workspace.absolute(), workers=workers, say=say)


FILES = {"report": "report/index.html", "links": "linked/index.html"}


def open_command(
    lake: options.LakePath,
    what: Annotated[Literal["report", "links"], typer.Argument(help="The report, or the drawn links.")] = "report",
) -> options.Summaries:
    """Open a page of the demo in the browser, and print its address. `multilink pages` has the newsroom's pages."""
    path = Path(lake).absolute().parent / FILES[what]
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; multilink demo makes it")
    if sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(path.as_uri())
    yield [path.as_uri()], {what: path.as_uri()}


def up_command(
    workspace: Annotated[Path, typer.Option(help="Folder to keep everything in.")] = Path("workspace"),
    port: Annotated[int | None, typer.Option(help="Port of Dagster's page; 0: any free one.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="Port of MLflow's page; 0: any free one.")] = None,
    pages_port: Annotated[int | None, typer.Option(help="Port of the newsroom's pages; 0: any free one.")] = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Start Dagster, MLflow and the pages here, with schedules and sensors, and keep them running until Ctrl-C."""
    from orchestration.local.up import run_up

    yield from run_up(workspace.absolute(), dagster=port, mlflow=mlflow_port, pages=pages_port, say=say)
