"""Predicted links to a Parquet file, written whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from schemas.links import PredictedLink, link_schema, to_row
from schemas.tables import to_table

ROWS_AT_ONCE = 65_536


def write_links(links: Iterable[PredictedLink], path: Path) -> int:
    """Write links to a Parquet file, replacing what is there once all are written; return how many there are."""
    schema = link_schema()
    waiting, count = iter(links), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            while batch := list(islice(waiting, ROWS_AT_ONCE)):
                writer.write_table(to_table(map(to_row, batch), schema))
                count += len(batch)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count
