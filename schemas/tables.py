"""Tables and the records in them: how a column says what it means, and how a record travels between workers.

Every table on disk is described by one schema made with these helpers: its fields carry their meaning and unit, it
carries its version. Writers cast rows to it (`to_table`), readers check it (`check_schema`); nothing infers a schema
from data.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.lake import Folder
from schemas.messages import IntegrityError
from schemas.versions import plain

MEANING = b"meaning"
UNIT = b"unit"
TABLE = b"multilink.table"
VERSION = b"multilink.version"
ADDED = b"added"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
FEATURE_PREFIX = "features."
T = TypeVar("T")


def travels(record: type[T]) -> type[T]:
    """Make a dataclass of two fields or more be pickled as a call of its class with their values; a decorator.

    A build pickles each document and image a dozen times, and the state functions that
    `dataclass(frozen=True, slots=True)` generates take four times as long.
    """
    values = attrgetter(*(field.name for field in fields(record)))  # type: ignore[arg-type]

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return record, values(self)

    record.__reduce__ = reduce  # type: ignore[method-assign,assignment]
    return record


def clean(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON can spell and UTF-8 cannot: they become U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def column(
    name: str,
    kind: pa.DataType,
    meaning: str,
    *,
    nullable: bool = False,
    unit: str | None = None,
    is_added: bool = False,
) -> pa.Field:
    """Return a field whose metadata states its meaning and unit.

    A column that was added to a table which is out already (`is_added`) is nullable, and files may lack it.
    """
    metadata = (
        {MEANING: meaning.encode()} | ({UNIT: unit.encode()} if unit else {}) | ({ADDED: b"1"} if is_added else {})
    )
    return pa.field(name, kind, nullable=nullable or is_added, metadata=metadata)


def table_schema(name: str, version: int, columns: Sequence[pa.Field]) -> pa.Schema:
    """Return a schema that names its table and version."""
    return pa.schema(columns, metadata={TABLE: name.encode(), VERSION: str(version).encode()})


def schema_version(schema: pa.Schema) -> int:
    """Return the version that a table's schema states."""
    return int(schema.metadata[VERSION])


def row_of(record: Any) -> dict[str, Any]:
    """Return a dataclass of plain values and enumerations as a row of its table."""
    return cast(dict[str, Any], plain(record))


def to_table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly `schema`; a null where none may be, or a wrong type, raises."""
    return _without_nulls(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))


def records_table(records: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Return dataclasses whose fields are the columns of `schema` as its table, column by column; raises likewise."""
    rows, columns = list(records), list[pa.Array]()
    for field in schema:
        values = [getattr(row, field.name) for row in rows]
        columns.append(pa.array(map(plain, values) if pa.types.is_nested(field.type) else values, field.type))
    return _without_nulls(pa.Table.from_arrays(columns, schema=schema))


def read_columns(folder: Folder, path: str, names: Sequence[str] | None = None) -> pa.Table:
    """Return some columns of a Parquet file, all for None; nothing is checked (`schemas.parts.read_part` does)."""
    with folder.open(path) as stream:
        return pq.ParquetFile(stream, pre_buffer=True).read(columns=names and [*names], use_threads=False)


def _without_nulls(table: pa.Table) -> pa.Table:
    for field in table.schema:
        if not field.nullable and table.column(field.name).null_count:
            raise IntegrityError(
                f"{table.column(field.name).null_count} nulls in column {field.name}, which must not be null"
            )
    return table


def check_schema(found: pa.Schema, expected: pa.Schema, *, where: str) -> None:
    """Raise unless a file's schema has every expected column with its type, and the same table version.

    Columns beyond the expected ones are allowed, and fields of a struct likewise: a change of a schema is additive or
    bumps its version. A column that was added later may be absent: its values are null.
    """
    for key in (TABLE, VERSION):
        have, want = (found.metadata or {}).get(key), expected.metadata[key]
        if have != want:
            raise IntegrityError(f"{where}: {key.decode()} is {have!r}, this code reads {want!r}")
    for field in expected:
        position = found.get_field_index(field.name)
        if position < 0 and ADDED in field.metadata:
            continue
        if position < 0:
            raise IntegrityError(f"{where}: column {field.name} is missing")
        if not _has_type(kind := found.field(position).type, field.type):
            raise IntegrityError(f"{where}: column {field.name} is {kind}, expected {field.type}")


def _has_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a column is of a type, or a struct with all fields of that."""
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        return all(field in found.fields for field in expected.fields)
    return bool(found == expected)
