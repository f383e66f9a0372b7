from dataclasses import asdict

from orchestration.commands import options
from pipelines.card.hosts import failures_by_host, host_lines
from pipelines.card.show import describe, retrieval_lines
from schemas.manifest import table_parts


def command(version: options.Version) -> options.Summaries:
    """Show a version: statistics by split (Hessel 2019, table 1), stages, failures, extractors, times."""
    home, manifest, folder = version()
    times = retrieval_lines(home.retrievals(manifest.dataset, manifest.version))
    hosts = failures_by_host(table_parts(manifest, folder, "failures"))
    yield [*describe(manifest, folder.uri), *host_lines(hosts), *times], asdict(manifest) | {"path": folder.uri}
