"""Rows of the tables of a corpus as records, without the pictures in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from pipelines.files import BrokenInputError
from pipelines.sources.records import FieldError
from pipelines.tables import read_batches, read_schema

Row = tuple[int, dict[str, Any]]  # its number from 0, and its values by column


def read_rows(
    shard: str, columns: Sequence[str], *, needed: Sequence[str] = ()
) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row under `<file name>:<number>`; a column that the file lacks is not in its rows.

    Raises:
        BrokenInputError: the rest of the file cannot be read.
        NotFoundError: there is no such file.
    """
    name = PurePosixPath(shard).name
    there = read_schema(shard).names
    missing = [column for column in needed if column not in there]
    if missing:
        raise BrokenInputError(f"{name}: expected the columns {', '.join(needed)}, found {', '.join(there)}", name)
    for first, batch in read_batches(shard, [column for column in columns if column in there]):
        for number, record in enumerate(batch.to_pylist(), start=first):
            yield f"{name}:{number}", (number, record)
