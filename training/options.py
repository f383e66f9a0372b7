"""Options that several commands have: their names, where their values come from, and what their help says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Dataset = Annotated[str, typer.Option(help="NAME or NAME@VERSION.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]
LakePath = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
Model = Annotated[str, typer.Option(help="Registered model.")]
Report = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML page to this folder.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
Split = Annotated[str, typer.Option(help="train, val or test.")]
Tracking = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow's address; MLFLOW_TRACKING_URI, else ./mlflow.db, by default."),
]
