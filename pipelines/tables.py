"""Tables of other projects on disk, Parquet and Arrow: their rows as a stream, and one cell by its place.

    train-00000-of-00002.parquet    Parquet
    data-00000-of-00004.arrow       Arrow, as a stream (Hugging Face's) or as a file

A stream holds some rows at a time, whatever the file's row groups are. Cells that are asked for in their order are read
in one pass: pictures of a shard are not decoded twice.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.files import file_errors
from pipelines.named_files import FileRejected
from schemas.failures import Reason
from schemas.lake import Folder

SUFFIXES = (".parquet", ".arrow")
ROWS_AT_ONCE = 32
_BUFFER_BYTES = 2**20
_FILE_MAGIC = b"ARROW1"
_LOCK = threading.Lock()


def is_table(name: str) -> bool:
    """Return whether a file is a table that is read here, by its name."""
    return name.lower().endswith(SUFFIXES)


def read_schema(uri: str) -> pa.Schema:
    """Return the schema of a file.

    Raises:
        BrokenInputError: it is no such table.
        NotFoundError: there is no such file.
    """
    with file_errors(uri), _open(uri) as stream:
        return _parquet(stream).schema_arrow if uri.endswith(SUFFIXES[0]) else _arrow(stream).schema


def read_batches(uri: str, columns: Sequence[str], *, start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield some rows at a time with the number of the first of them.

    Args:
        uri: of the file.
        columns: that are read.
        start: a row; what is before its row group is left out.

    Raises:
        BrokenInputError: the rest of the file cannot be read; rows yielded before stay good.
        NotFoundError: there is no such file.
    """
    with file_errors(uri), _open(uri) as stream:
        yield from (_parquet_batches if uri.endswith(SUFFIXES[0]) else _arrow_batches)(stream, columns, start)


def read_cell(uri: str, column: str, row: int, item: int | None = None) -> bytes:
    """Return the bytes in a cell: binary, or Hugging Face's struct of `bytes` and `path`.

    Args:
        uri: of the file.
        column: its name.
        row: from 0.
        item: which of them, where the cell is a list.

    Raises:
        FileRejected: NOT_FOUND: there is no such cell, or nothing in it; CORRUPT_IMAGE: the file is damaged.
    """
    with _LOCK:
        value = _column(uri, column, None if "://" in uri else Path(uri).stat().st_mtime_ns).cell(row)
    if item is not None and isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        items = value.values
        value = items[item] if items is not None and 0 <= item < len(items) else pa.scalar(None)
    if isinstance(value, pa.StructScalar) and value.is_valid:
        value = value.get("bytes", pa.scalar(None)) if "bytes" in value else pa.scalar(None)
    data = value.as_py()
    if not isinstance(data, bytes):
        raise FileRejected(Reason.NOT_FOUND, f"{column} of row {row}: expected the bytes of a picture, found none")
    return data


@lru_cache(maxsize=8)
def _column(uri: str, column: str, changed: int | None) -> _Column:
    """Return this process's one view of a column; a new one where the file has changed."""
    return _Column(uri, column)


class _Column:
    """A column of a file, read on from where it was asked for last."""

    def __init__(self, uri: str, column: str) -> None:
        self._uri, self._column = uri, column
        self._first, self._values = sys.maxsize, pa.array([])
        self._batches: Iterator[tuple[int, pa.RecordBatch]] = iter(())
        self._next = 0

    def cell(self, row: int) -> Any:
        if row < self._first or row >= self._next + 64 * ROWS_AT_ONCE:
            self._batches = read_batches(self._uri, [self._column], start=row)
            self._next = self._first = 0
            self._values = pa.array([])
        while row >= self._next:
            found = next(self._batches, None)
            if found is None:
                raise FileRejected(Reason.NOT_FOUND, f"row {row}: the file has no such row")
            self._first, batch = found
            self._values, self._next = batch.column(0), self._first + batch.num_rows
        value = self._values.slice(row - self._first, 1)
        value.validate(full=True)
        return value[0]


def _open(uri: str) -> Any:
    folder, _, name = uri.rpartition("/")
    return Folder(folder or ".").open(name)


def _parquet(stream: Any) -> pq.ParquetFile:
    return pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _parquet_batches(stream: Any, columns: Sequence[str], start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    file = _parquet(stream)
    metadata = file.metadata
    ends = list(accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))
    begin = bisect_right(ends, start)
    row = ends[begin - 1] if begin else 0
    groups = range(begin, metadata.num_row_groups)
    for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=list(columns), use_threads=False):
        yield row, batch
        row += batch.num_rows


def _arrow(stream: Any) -> Any:
    magic = stream.read(len(_FILE_MAGIC))
    stream.seek(0)
    return pa.ipc.open_file(stream) if magic == _FILE_MAGIC else pa.ipc.open_stream(stream)


def _arrow_batches(stream: Any, columns: Sequence[str], start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    file = _arrow(stream)
    is_file = isinstance(file, pa.ipc.RecordBatchFileReader)
    row = 0
    for batch in map(file.get_batch, range(file.num_record_batches)) if is_file else file:
        if row + batch.num_rows > start:
            chosen = batch.select(list(columns))
            for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield row + begin, chosen.slice(begin, ROWS_AT_ONCE)
        row += batch.num_rows
