from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


def command(
    reference: options.References,
    target: Annotated[str, typer.Argument(metavar="LAKE", help="Path or URI of the other lake.")],
    lake: options.LakePath,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Copy versions to a second lake, and check every byte; a repeated call copies what is missing."""
    from pipelines.exports.replicate import replicate

    replicas = replicate(Lake.at(lake), reference, Lake.at(target), say=say)
    name = reference.partition("@")[0]
    lines = [
        f"{name}@{each.version}: {each.copied} files copied, {each.bytes / 1e6:.1f} MB; {each.there} were there before"
        for each in replicas
    ]
    yield lines, {"dataset": name, "lake": target, "versions": replicas}
