"""What a lake holds: rows of its tables, and its bytes, decompressed."""

import gzip
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastwarc import ArchiveIterator

from schemas.lake import Lake


def rows_of(lake: Lake, version: str, table: str) -> list[dict[str, Any]]:
    folder = lake.dataset("diy", version).child(table)
    tables = [pq.read_table(folder.open(name)) for name in folder.files() if name.endswith(".parquet")]
    return pa.concat_tables(tables).to_pylist() if tables else []


def bytes_of(lake: Lake) -> dict[str, bytes]:
    """Return everything a lake holds, decompressed: records of WARC files, values of tables, files as they are."""
    return {path: b"\n".join(_plain(path, lake.root.read(path))) for path in lake.root.files()}


def _plain(path: str, data: bytes) -> Iterator[bytes]:
    yield data
    if path.endswith(".warc.gz"):
        yield gzip.decompress(data)
        for record in ArchiveIterator(io.BytesIO(data)):
            yield record.reader.read()
    elif path.endswith(".parquet"):
        yield from _values(pq.read_table(io.BytesIO(data)).to_pylist())
    elif path.endswith(".npy"):
        yield np.load(io.BytesIO(data)).tobytes()


def _values(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _values(each)
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
