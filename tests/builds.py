"""Builds of a user's own documents for tests, and the rows of what they gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import recipe
from pipelines.run import BuildSummary, build_dataset
from schemas.lake import Lake
from schemas.overrides import override

PLAIN = ("features.images=", "features.sentences=")  # where vectors do not matter: half the time


def build(documents: Path, lake: Path, *settings: str) -> BuildSummary:
    """Build the documents of a file, with some settings changed."""
    config = override(recipe("documents"), [f"source.documents={documents}", *settings])
    return build_dataset(config, lake=Lake.at(str(lake)), say=lambda _: None)


def read_table(summary: BuildSummary, table: str) -> pa.Table:
    """Return a table of a version, its parts in order."""
    entries = summary.manifest.parts(table)
    return pa.concat_tables(pq.read_table(Path(summary.path) / each.path, partitioning=None) for each in entries)


def rows(summary: BuildSummary, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of a version; a table without rows has no part."""
    found: list[dict[str, Any]] = read_table(summary, table).to_pylist() if summary.manifest.parts(table) else []
    return found


def by_source(summary: BuildSummary) -> dict[str, dict[str, Any]]:
    """Return the rows of a version's images by the addresses that the images came from."""
    return {str(row["source"]): row for row in rows(summary, "images")}
