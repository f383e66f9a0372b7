from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Option(help=f"{options.ADDRESSES}.")],
    host: Annotated[str, typer.Option(help="Address to listen on; who reaches it is answered.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free.")] = 5050,
    calibration: options.Calibration = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Answer documents with their links over HTTP, until interrupted.

    A document is given as the model reads it: its sentences, and the vectors of the extractors it was trained on, or
    its pictures; `multilink link --input` takes raw documents.
    """
    from training.mlflow.serving import run_serve

    yield from run_serve(model=model, host=host, port=port, calibration_path=calibration, tracking=tracking)
