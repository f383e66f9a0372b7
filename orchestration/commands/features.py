"""Choose an extractor of features."""

from orchestration.commands import options
from schemas.overrides import override


def list_command(settings: options.Settings = None) -> options.Summaries:
    """List the extractors with their values, the origin of their weights, and what is missing to use them.

    With `--set features.weights=NAME=FILE` it checks whether that file can be used.
    """
    from pipelines.config import recipe
    from pipelines.features.catalogue import listed_extractors, listing

    config = override(recipe("documents"), settings or [])
    rows = listed_extractors(config.features, config.http)
    yield listing(rows), {row["name"]: row for row in rows}
