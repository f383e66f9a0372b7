from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    name: Annotated[str, typer.Argument(help="Registered model.")],
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the list to this file as CSV, too.")] = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List who was champion when, by which decision, and on which data."""
    from training.mlflow.history import championships, lines, to_csv
    from training.mlflow.loading import open_registry

    found = championships(open_registry(tracking, [f"models:/{name}"]), name)
    if csv is not None:
        csv.write_text(to_csv(found), encoding="utf-8", newline="")
    shown = lines(found) if found else [f"{name}: no version was ever promoted"]
    yield shown, {"promotions": found}
