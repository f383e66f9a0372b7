"""Rows of the tables of a corpus as records, without the pictures in them."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from pipelines.files import BrokenInputError
from pipelines.sources.records import FieldError
from pipelines.tables import read_batches, read_schema
from schemas.failures import Reason

Row = tuple[int, dict[str, Any]]  # its number from 0, and its values by column


def read_rows(
    shard: str, place: str, columns: Sequence[str], *, needed: Sequence[str] = (), present: Sequence[str] = ()
) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row under `<place>:<number>`; a column that the file lacks is not in its rows.

    Args:
        shard: Parquet or Arrow.
        place: of the shard among all.
        columns: that are read.
        needed: those that must be there.
        present: columns of which only is read whether a row has a value.

    Raises:
        BrokenInputError: the rest of the file cannot be read.
        NotFoundError: there is no such file.
    """
    name = PurePosixPath(shard).name
    there = read_schema(shard).names
    missing = [column for column in needed if column not in there]
    if missing:
        raise BrokenInputError(f"{name}: expected the columns {', '.join(needed)}, found {', '.join(there)}", name)
    read, flags = ([column for column in names if column in there] for names in (columns, present))
    for first, batch in read_batches(shard, [*read, *flags]):
        held = [batch.column(column).is_valid().to_pylist() for column in flags]
        for index, values in enumerate(_values(batch.select(read))):
            number = first + index
            if isinstance(values, dict):
                values |= {column: of_rows[index] for column, of_rows in zip(flags, held, strict=True)}
            yield f"{place}:{number}", values if isinstance(values, FieldError) else (number, values)


def _values(batch: pa.RecordBatch) -> list[dict[str, Any] | FieldError]:
    """Return the values of each row, or why they cannot be read: text that is no UTF-8, a date that there never was."""
    try:
        batch.validate(full=True)
        return list(batch.to_pylist())
    except (ValueError, OverflowError) as problem:
        if batch.num_rows > 1:
            return [values for number in range(batch.num_rows) for values in _values(batch.slice(number, 1))]
        return [FieldError(Reason.BROKEN_RECORD, f"expected values that can be read: {problem}")]
