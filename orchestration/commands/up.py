from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
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
