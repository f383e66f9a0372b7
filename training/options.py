"""Options that several commands have: their names, where their values come from, and what their help says."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from schemas.console import Console
from schemas.errors import UsageError

PROBE_S, SERVER_WAIT_S = 4.0, 60.0

Dataset = Annotated[str, typer.Option(help="NAME or NAME@VERSION.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]
LakePath = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
Model = Annotated[str, typer.Option(help="Registered model.")]
Report = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML page to this folder.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
ReadingSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (http.*, images.*, features.*)."),
]
Split = Annotated[str, typer.Option(help="train, val or test.")]


def _answered(uri: str | None) -> str | None:
    """Return MLflow's address, once a server there answers; what libraries do about one that is away takes minutes.

    Raises:
        UsageError: nobody listened there for `SERVER_WAIT_S`, as while a server starts again.
    """
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https"):
        return uri
    until, is_told = time.monotonic() + SERVER_WAIT_S, False
    while True:
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout=PROBE_S).close()
        except (OSError, ValueError) as problem:
            if isinstance(problem, ValueError) or time.monotonic() > until:
                raise UsageError(f"--tracking-uri {uri}: no server answers there: {problem}") from problem
            if not is_told:
                Console().say(f"{uri} does not answer ({problem}); asking again for {SERVER_WAIT_S:.0f} s")
                is_told = True
            time.sleep(1)
        else:
            return uri


Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        envvar="MLFLOW_TRACKING_URI",
        callback=_answered,
        help="MLflow's address; ./mlflow.db by default.",
    ),
]
