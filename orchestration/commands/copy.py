from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as champion.")],
    to: Annotated[str, typer.Option(metavar="URI", help="MLflow's address of the other registry.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Its name there; the same by default.")
    ] = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Copy a version with its run to another registry, such as staging's to production's: the challenger there."""
    from training.mlflow.copying import copy_version
    from training.mlflow.loading import open_registry
    from training.mlflow.stored import tracking_uri

    source, target = open_registry(tracking, [f"models:/{model}"]).tracking_uri, tracking_uri(to)
    done = copy_version(source, model, version, to=target, new_name=name, say=say)
    when = "" if done.is_new else " before"
    yield [f"{done.version.uri} was copied from {done.copied_from}{when}", f"sha256 {done.digest}"], done
