from dataclasses import asdict

from orchestration.commands import options
from pipelines.card.show import describe, retrieval_lines


def command(version: options.Version) -> options.Summaries:
    """Show a version: statistics by split (Hessel 2019, table 1), stages, failures, extractors, times of fetching."""
    home, manifest, folder = version()
    times = retrieval_lines(home.retrievals(manifest.dataset, manifest.version))
    yield [*describe(manifest, folder.uri), *times], asdict(manifest) | {"path": folder.uri}
