from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


def command(
    model: Annotated[str, typer.Argument(metavar="NAME[@champion|@VERSION]", help="Registered model.")],
    trust: options.Trust = None,
    is_deep: Annotated[bool, typer.Option("--deep", help="Score it again, and compare every score.")] = False,
    lake: Annotated[
        str | None, typer.Option("--lake", help="Lake of its statements and data; by default as the registry says.")
    ] = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Compare a champion with the signed statements on it: its files, its data and, with --deep, its scores.

    Exit status 2 and the place of the first difference, if there is one.
    """
    from training.promotions.proof import keys_of

    keys = keys_of(trust or ())
    name, _, version = model.removeprefix("models:/").replace("/", "@").partition("@")
    from training.mlflow.loading import open_registry
    from training.mlflow.verification import verify_champion

    found = verify_champion(
        open_registry(tracking, [f"models:/{name}"]),
        name,
        version or "champion",
        keys=keys,
        lake=None if lake is None else Lake.at(lake),
        is_deep=is_deep,
        say=say,
    )
    proof = found.proof
    values = {
        "model": proof.record.model.name,
        "version": proof.version,
        "statement": proof.statement.where,
        "signed_by": list(proof.statement.signers),
        "findings": list(found.findings),
    }
    yield [f"{proof.uri} is as it was promoted", *(f"  {each}" for each in found.findings)], values
