"""Tables of other projects on disk, Parquet and Arrow: their rows as a stream, and one cell by its place.

    train-00000-of-00002.parquet    Parquet
    data-00000-of-00004.arrow       Arrow, as a stream (Hugging Face's) or as a file

A stream holds rows of some megabytes at a time, whatever the file's row groups are: how many follows from the sizes
that the file says. Pictures are not read to see that they are there, where the file counts none that is missing. Cells
that are asked for in their order are read in one pass: pictures of a shard are not decoded twice.
"""

from __future__ import annotations

import base64
import sys
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.files import file_errors
from pipelines.named_files import FileRejected
from schemas.failures import Reason
from schemas.lake import folder_of

SUFFIXES = (".parquet", ".arrow")
BYTES_AT_ONCE = 2**20  # on average: some rows of a group may be a thousand times as long as most
ROWS_AT_ONCE = 1024  # at most
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
        return _parquet(stream).schema_arrow if uri.lower().endswith(SUFFIXES[0]) else _arrow(stream).schema


def read_batches(
    uri: str, columns: Sequence[str], *, start: int = 0, present: Collection[str] = ()
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield some rows at a time with the number of the first of them.

    Args:
        uri: of the file.
        columns: that are read.
        start: a row; what is before its row group is left out.
        present: those of the columns whose bytes are not needed: what is bytes in every row may be missing, all of the
            column or a field of it.

    Raises:
        BrokenInputError: the rest of the file cannot be read; rows yielded before stay good.
        NotFoundError: there is no such file.
    """
    with file_errors(uri), _open(uri) as stream:
        if uri.lower().endswith(SUFFIXES[0]):
            yield from _parquet_batches(stream, columns, start, present)
        else:
            yield from _arrow_batches(stream, columns, start)


def read_cell(uri: str, column: str, row: int, item: int | None = None) -> bytes:
    """Return the bytes in a cell: binary, text in base64, or Hugging Face's struct of `bytes` and `path`.

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
    if isinstance(data, str):
        try:
            data = base64.b64decode(data.partition(";base64,")[2] or data)
        except ValueError as problem:
            raise FileRejected(Reason.CORRUPT_IMAGE, f"{column} of row {row}: expected base64: {problem}") from problem
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
        if row < self._first or row >= self._next + 2 * ROWS_AT_ONCE:
            self._batches = read_batches(self._uri, [self._column], start=row)
            self._next = self._first = 0
            self._values = pa.array([])
        while row >= self._next:
            found = next(self._batches, None)
            if found is None:
                raise FileRejected(Reason.NOT_FOUND, f"row {row}: the file has no such row")
            self._first, batch = found
            self._values, self._next = batch.column(self._column), self._first + batch.num_rows
        value = self._values.slice(row - self._first, 1)
        try:
            value.validate(full=True)
        except pa.ArrowInvalid as problem:
            raise FileRejected(Reason.CORRUPT_IMAGE, f"row {row}: its bytes are damaged: {problem}") from problem
        return value[0]


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is one of bytes that are no text."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _open(uri: str) -> Any:
    if "://" not in uri and uri.lower().endswith(SUFFIXES[1]):
        return pa.memory_map(uri)  # of its pictures only those are read that are asked for
    folder, name = folder_of(uri)
    return folder.open(name)


def _parquet(stream: Any) -> pq.ParquetFile:
    return pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _parquet_batches(
    stream: Any, columns: Sequence[str], start: int, present: Collection[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    file = _parquet(stream)
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    ends = list(accumulate(group.num_rows for group in groups))
    for number in range(bisect_right(ends, start), len(groups)):
        chunks = [chunk for name in columns for chunk in _chunks(groups[number], file, name, present)]
        rows = _rows_at_once(groups[number].num_rows, sum(chunk.total_uncompressed_size for chunk in chunks))
        names = [chunk.path_in_schema for chunk in chunks]
        row = ends[number] - groups[number].num_rows
        for batch in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
            yield row, batch
            row += batch.num_rows


def _chunks(group: Any, file: pq.ParquetFile, column: str, present: Collection[str]) -> list[Any]:
    """Return the column chunks of a row group that a column is read from."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    chunks = [
        chunk for chunk in chunks if chunk.path_in_schema == column or chunk.path_in_schema.startswith(f"{column}.")
    ]
    if column not in present:
        return chunks
    kept = [chunk for chunk in chunks if not _is_everywhere(chunk)]
    return kept if kept or is_bytes(file.schema_arrow.field(column).type) else chunks


def _is_everywhere(chunk: Any) -> bool:
    """Return whether a column chunk holds bytes that are no text, in every row."""
    is_of_bytes = chunk.physical_type == "BYTE_ARRAY" and chunk.statistics is not None
    if not is_of_bytes or chunk.statistics.logical_type.type != "NONE":
        return False
    return bool(chunk.statistics.has_null_count and chunk.statistics.null_count == 0)


def _rows_at_once(rows: int, size: int) -> int:
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE * rows // max(1, size)))


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
            rows = _rows_at_once(batch.num_rows, chosen.get_total_buffer_size())  # safe before it is validated
            for begin in range(0, batch.num_rows, rows):
                yield row + begin, chosen.slice(begin, rows)
        row += batch.num_rows
