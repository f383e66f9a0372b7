from dataclasses import asdict
from itertools import chain

from orchestration.commands import options
from pipelines.card.show import describe, failures_by_host, host_lines, retrieval_lines
from schemas.manifest import table_parts
from schemas.raw import retrieval_tables


def command(version: options.Version) -> options.Summaries:
    """Show a version: statistics by split (Hessel 2019, table 1), stages, failures, extractors, times."""
    home, manifest, folder = version()
    beside = home.retrievals(manifest.dataset, manifest.version)
    hosts = failures_by_host(
        chain(table_parts(manifest, folder, "failures"), retrieval_tables(beside, is_unreached=True))
    )
    yield (
        [*describe(manifest, folder.uri), *host_lines(hosts), *retrieval_lines(beside)],
        asdict(manifest) | {"path": folder.uri},
    )
