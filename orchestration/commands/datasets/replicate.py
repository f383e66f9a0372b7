from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import Console
from schemas.lake import Lake


def command(
    reference: options.References,
    target: Annotated[str, typer.Argument(metavar="LAKE", help="Path or URI of the other lake.")],
    lake: options.LakePath,
) -> options.Summaries:
    """Copy versions to a second lake, each byte checked; called again, it copies what is missing."""
    from pipelines.exports.replicate import replicate

    replicas = replicate(Lake.at(lake), reference, Lake.at(target), say=Console().say)
    name = reference.partition("@")[0]
    lines = [
        f"{name}@{each.version}: {each.copied} files copied, {each.bytes / 1e6:.1f} MB; {each.there} were there"
        for each in replicas
    ]
    yield lines, {"dataset": name, "lake": target, "versions": [asdict(each) for each in replicas]}
