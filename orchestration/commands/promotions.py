from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    name: Annotated[str, typer.Argument(help="Registered model.")],
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the list to this file as CSV, too.")] = None,
    is_adopted: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Answer with your key for all that the record says so far: an unsigned one, another key's, or one of "
            "the model's earlier name.",
        ),
    ] = False,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List who was champion when, by which decision, on which data, and by whose signature.

    With keys that are trusted, every signature is checked first. A record that is not signed by them is an error.
    """
    from training.mlflow.champions import adopt, record_of
    from training.mlflow.loading import open_registry
    from training.promotions.history import championships, lines, to_csv

    client = open_registry(tracking, [f"models:/{name}"])
    record = adopt(client, name) if is_adopted else record_of(client, name)
    found = championships(record)
    if csv is not None:
        csv.write_text(to_csv(found), encoding="utf-8", newline="")
    table = [*lines(found), f"signatures: {record.signatures}"] if found else [f"{name}: no version was ever promoted"]
    yield table, {"promotions": found, "signatures": record.signatures}
