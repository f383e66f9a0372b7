from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    name: Annotated[str, typer.Argument(help="Registered model.")],
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the list to this file as CSV, too.")] = None,
    bom: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the champion's bill of materials to this file, as CycloneDX JSON."),
    ] = None,
    trust: options.Trust = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List who was champion when, by which decision, on which data, and by whose signature.

    Signatures are shown here, and checked by multilink verify and for a bill of materials.
    """
    from training.mlflow.stored import stored_model, tracking_uri
    from training.promotions.history import championships, lines, to_csv
    from training.promotions.record import read_record

    model = stored_model(tracking_uri(tracking), name)
    if model is None:
        from training.mlflow.loading import open_registry
        from training.mlflow.registry import registered

        model = registered(open_registry(tracking, [f"models:/{name}"]), name)
    record = read_record(model)
    found = championships(record)
    if csv is not None:
        csv.write_text(to_csv(found), encoding="utf-8", newline="")
    if bom is not None:
        from training.promotions.materials import bill_of_materials
        from training.promotions.proof import keys_of, prove

        bom.write_text(bill_of_materials(prove(record, keys=keys_of(trust or ()))), encoding="utf-8")
    table = lines(found) if found else [f"{name}: no version was ever promoted"]
    yield table, {"promotions": found}
