"""Rows of the tables of a corpus as records, without the pictures in them: Parquet, Arrow, CSV, TSV and JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from pipelines.files import BrokenInputError
from pipelines.sources.delimited import SUFFIXES, read_table
from pipelines.sources.json_files import read_items
from pipelines.sources.records import FieldError, json_lines
from pipelines.tables import is_bytes, is_table, read_batches, read_schema
from schemas.errors import BuildError
from schemas.failures import Reason

Row = tuple[int, dict[str, Any]]  # its number from 0, and its values by column


def columns_of(shard: str) -> list[str]:
    """Return the columns of a file; of one of JSON, the fields of its first object.

    Raises:
        BrokenInputError: it cannot be read.
        NotFoundError: there is no such file.
    """
    if is_table(shard):
        return list(read_schema(shard).names)
    if _is_delimited(shard):
        try:
            return read_table(shard)[0]
        except BuildError as problem:
            raise BrokenInputError(str(problem), PurePosixPath(shard).name) from problem
    return next((list(record) for _, record in _objects(shard, "") if not isinstance(record, FieldError)), [])


def _is_delimited(shard: str) -> bool:
    return any(suffix in PurePosixPath(shard).suffixes for suffix in SUFFIXES)


def _objects(shard: str, place: str) -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    return read_items(shard, place, 0) if ".json" in PurePosixPath(shard).suffixes else json_lines(shard, place)


def _read_texts(shard: str, place: str) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row of a file without types."""
    rows: Iterable[tuple[str, Mapping[str, Any] | FieldError]] = _objects(shard, place)
    if _is_delimited(shard):
        rows = ((f"{place}:{where.rpartition(':')[2]}", row) for where, row in read_table(shard)[1])
    for number, (where, row) in enumerate(rows):
        if isinstance(row, FieldError):
            yield where, row
        else:
            yield where, (number, {name: None if value == "" else value for name, value in row.items()})


def read_rows(
    shard: str, place: str, columns: Sequence[str], *, needed: Sequence[str] = (), present: Sequence[str] = ()
) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row under `<place>:<number>`; a column that the file lacks is not in its rows.

    Args:
        shard: its path.
        place: of the shard among all.
        columns: that are read.
        needed: those that must be there.
        present: columns of which no bytes are read, but whether they are there.

    Raises:
        BrokenInputError: the rest of the file cannot be read.
        NotFoundError: there is no such file.
    """
    if not is_table(shard):
        yield from _read_texts(shard, place)
        return
    name = PurePosixPath(shard).name
    schema = read_schema(shard)
    missing = [column for column in needed if column not in schema.names]
    if missing:
        raise BrokenInputError(
            f"{name}: expected the columns {', '.join(needed)}, found {', '.join(schema.names)}", name
        )
    read, flags = ([column for column in names if column in schema.names] for names in (columns, present))
    for first, batch in read_batches(shard, [*read, *flags], present=flags):
        if not set(read) <= {*batch.schema.names}:
            raise BrokenInputError(f"{name}: its rows have other columns than its schema", name)
        for index, values in enumerate(_values(batch, read, {column: schema.field(column).type for column in flags})):
            number = first + index
            yield f"{place}:{number}", values if isinstance(values, FieldError) else (number, values)


def _without_bytes(array: pa.Array | None, kind: pa.DataType, rows: int) -> list[Any]:
    """Return the values of an array, but for bytes whether they are there; where it is None, they are in every row."""
    if array is None or is_bytes(kind):
        return [True] * rows if array is None else list(array.is_valid().to_pylist())
    if pa.types.is_struct(kind):
        fields = [
            _without_bytes(array.field(field.name) if field.name in array.type.names else None, field.type, rows)
            for field in kind
        ]
        names, is_there = [field.name for field in kind], array.is_valid().to_pylist()
        values = zip(*fields, strict=True) if fields else [()] * rows
        return [
            dict(zip(names, row, strict=True)) if valid else None for row, valid in zip(values, is_there, strict=True)
        ]
    if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
        items = [scalar.values if scalar.is_valid else None for scalar in array]
        return [each if each is None else _without_bytes(each, kind.value_type, len(each)) for each in items]
    return list(array.to_pylist())


def _values(
    batch: pa.RecordBatch, read: Sequence[str], flags: Mapping[str, pa.DataType]
) -> list[dict[str, Any] | FieldError]:
    """Return the values of each row, or why they cannot be read: text that is no UTF-8, a date that there never was.

    Nothing is read before it is validated: lengths and offsets of a damaged file may lead outside it.
    """
    try:
        batch.validate(full=True)
        rows: list[dict[str, Any] | FieldError] = list(batch.select(list(read)).to_pylist())
        for column, kind in flags.items():
            array = batch.column(column) if column in batch.schema.names else None
            for row, is_there in zip(rows, _without_bytes(array, kind, batch.num_rows), strict=True):
                row[column] = is_there  # type: ignore[index]  # no row is an error yet
        return rows
    except (ValueError, OverflowError) as problem:
        if batch.num_rows > 1:
            slices = (batch.slice(number, 1) for number in range(batch.num_rows))
            return [values for each in slices for values in _values(each, read, flags)]
        return [FieldError(Reason.BROKEN_RECORD, f"expected values that can be read: {problem}")]
