"""Predicted links to Parquet: a file of a user's own, written whole or not at all, or the bytes of a shard's file."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.links import LINK_SCHEMA, PredictedLink
from schemas.tables import row_of, to_table

ROWS_AT_ONCE = 65_536
COMPRESSION = "zstd"


def write_links(links: Iterable[PredictedLink], path: Path) -> int:
    """Write links to a Parquet file, replacing what is there once all are written; return how many there are."""
    schema = LINK_SCHEMA
    waiting, count = iter(links), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with pq.ParquetWriter(temporary, schema, compression=COMPRESSION) as writer:
            while batch := list(islice(waiting, ROWS_AT_ONCE)):
                writer.write_table(to_table(map(row_of, batch), schema))
                count += len(batch)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def links_file(links: Iterable[PredictedLink], note: Mapping[bytes, bytes]) -> bytes:
    """Return the Parquet file of some links, with a note in its metadata; the same links give the same bytes."""
    table = to_table(map(row_of, links), LINK_SCHEMA)
    return parquet_bytes(table.replace_schema_metadata({**table.schema.metadata, **note}))


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=COMPRESSION)
    return buffer.getvalue()
