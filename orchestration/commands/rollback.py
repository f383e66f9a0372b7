from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: options.Model,
    champion: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only if this version is the champion.")
    ] = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Make the previous champion the champion again; exit status 1 if there is none."""
    from training.mlflow.loading import open_registry
    from training.mlflow.promotion import rollback

    restored, replaced = rollback(open_registry(tracking, [f"models:/{model}"]), model, champion=champion)
    line = f"{restored.uri} is the champion again, in place of version {replaced}"
    yield (
        [line, *options.signature_lines()],
        {"model": restored.name, "version": restored.version, "champion_before": replaced},
    )
