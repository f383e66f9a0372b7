from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    by: Annotated[str, typer.Option(metavar="WHO", help="Name of the person who approves.")],
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Approve a version for promotion, where the policy requires it; its next promotion can then succeed."""
    from training.mlflow.loading import open_registry
    from training.mlflow.promotion import approve

    found = approve(open_registry(tracking, [f"models:/{model}"]), model, version, by=by)
    values = {"model": found.name, "version": found.version, "approved_by": by}
    yield [f"{found.uri} is approved by {by}", *options.signature_lines()], values
