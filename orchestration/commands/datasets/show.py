from dataclasses import asdict

from orchestration.commands import options
from pipelines.card.show import describe, retrieval_lines
from schemas.lake import Lake
from schemas.manifest import read_manifest


def command(reference: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Show a version: Hessel 2019's table 1 per split, stages, failures with reasons, extractors, times of fetching."""
    home = Lake.at(lake)
    manifest, folder = read_manifest(home, reference)
    times = retrieval_lines(home.retrievals(manifest.dataset, manifest.version))
    yield [*describe(manifest, folder.uri), *times], asdict(manifest) | {"path": folder.uri}
