"""Builds for tests, and the rows and files of what they gave."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import recipe
from pipelines.run import BuildSummary, build_dataset
from schemas.lake import Lake
from schemas.overrides import override

PLAIN = ("features.images=", "features.sentences=")  # where vectors do not matter: half the time


def quiet(_: str) -> None:
    """Print nothing."""


def build_of(dataset: str, lake: Path | Lake, *settings: str, **options: Any) -> BuildSummary:
    """Build the data set of a recipe, with some settings changed."""
    there = lake if isinstance(lake, Lake) else Lake.at(str(lake))
    return build_dataset(override(recipe(*dataset.split(" ")), settings), lake=there, say=quiet, **options)


def build(documents: Path, lake: Path | Lake, *settings: str, **options: Any) -> BuildSummary:
    """Build the documents of a file, with some settings changed."""
    return build_of("documents", lake, f"source.documents={documents}", *settings, **options)


def read_table(summary: BuildSummary, table: str) -> pa.Table:
    """Return a table of a version, its parts in order."""
    entries = summary.manifest.parts(table)
    return pa.concat_tables(pq.read_table(Path(summary.path) / each.path, partitioning=None) for each in entries)


def rows(summary: BuildSummary, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of a version; a table without rows has no part."""
    found: list[dict[str, Any]] = read_table(summary, table).to_pylist() if summary.manifest.parts(table) else []
    return found


def documents_of(summary: BuildSummary) -> dict[str, dict[str, Any]]:
    """Return the rows of a version's documents by their ids."""
    return {row["id"]: row for row in rows(summary, "documents")}


def by_source(summary: BuildSummary) -> dict[str, dict[str, Any]]:
    """Return the rows of a version's images by the addresses that the images came from."""
    return {str(row["source"]): row for row in rows(summary, "images")}


def adds_up(summary: BuildSummary) -> bool:
    """Return whether every stage passes on or counts each record that enters it."""
    stages = summary.manifest.stages.values()
    return all(row["in"] == row["out"] + row["rejected"] + row["failed"] for row in stages)


def tree(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the bytes of all files below a folder, by their paths in it."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
