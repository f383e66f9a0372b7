"""What the command serve does: load a model and answer over HTTP until interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from training.mlflow.evaluations import calibration_of
from training.mlflow.loading import load
from training.mlflow.runs import open_tracking
from training.serving.server import bind, make_app, serve


def run_serve(
    *,
    model: str,
    host: str,
    port: int,
    calibration_path: Path | None = None,
    tracking: str | None = None,
    announce: Callable[[list[str], dict[str, str]], None],
) -> None:
    """Serve a model; `announce` is told once where, in lines and in values.

    Raises:
        UsageError: there is no such model or calibration, or the address cannot be had.
    """
    client = open_tracking(tracking)
    loaded = load(model, client)
    app = make_app(loaded, calibration_of(client, loaded, calibration_path))
    address = bind(host, port)
    ask = f"curl -s {address.url}/invocations -H 'Content-Type: application/json' -d @-"
    lines = [
        f"{loaded.uri} at {address.url}, until Ctrl-C",
        f"try: curl -s {address.url}/example | {ask}",
    ]
    announce(lines, {"model": loaded.uri, "address": address.url})
    serve(app, address)
