from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


def command(
    version: options.Version,
    share: Annotated[
        float, typer.Option(help="Share of the documents, chosen by their ids: those of 0.1 are among those of 0.2.")
    ] = 1.0,
    where: Annotated[
        str, typer.Option(help="Condition, such as 'language == \"en\" and sentences >= 5 and links is not None'.")
    ] = "",
    min_coherence: Annotated[
        float, typer.Option(help="Least coherence, 0 to 1, by the links that a model predicted (--links).")
    ] = 0.0,
    links: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or URI that `link --dataset` wrote links of the version to.")
    ] = "",
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write a version of a part of another version's documents, with their images, features and splits."""
    from pipelines.exports.subset import Selection, subset_lines, write_subset
    from pipelines.exports.where import read_coherence
    from pipelines.turns import turn_of_build

    home, manifest, folder = version()
    coherence = read_coherence(Lake.at(links).root, manifest.reference) if links else None
    selection = Selection(share=share, where=where, min_coherence=min_coherence, coherence=coherence)
    with turn_of_build(home, manifest.dataset, say):
        subset = write_subset(home, manifest, folder, selection, say=say)
    values = asdict(subset) | {"path": home.dataset(subset.dataset, subset.version).uri}
    yield subset_lines(subset, manifest), values
