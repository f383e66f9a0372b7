"""Rows of a CSV file with a header, streamed; a row that is not as the header says is a failure row of its own."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.sources.records import FieldError
from schemas.errors import BuildError
from schemas.failures import Reason

Row = dict[str, str]  # cells by column name, without space around them


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns, and its rows, which can be read once, each under `<file name>:<line>`."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[str, Row | FieldError]]


def read_table(address: str | Path, *, delimiter: str | None = None) -> Table:
    """Return the columns and rows of a file with a header; without a delimiter, pipe or comma, as the header has more.

    Raises:
        BuildError: there is no header.
        FileNotFoundError: there is no such file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # of the process: there is no other
    lines = read_lines(address)
    try:
        header = next(lines, (0, b""))[1].decode("utf-8-sig", errors="replace")
    except BrokenInputError as problem:
        raise BuildError(f"{address}: expected a header, found {problem}") from problem
    delimiter = delimiter or ("|" if header.count("|") > header.count(",") else ",")
    columns = tuple(cell.strip() for cell in header.split(delimiter))
    if not header:
        raise BuildError(f"{address}: expected a header, found an empty file")
    return Table(columns, _rows(lines, columns, input_file(address).name, delimiter))


def _rows(
    lines: Iterator[tuple[int, bytes]], columns: tuple[str, ...], name: str, delimiter: str
) -> Iterator[tuple[str, Row | FieldError]]:
    line_number = 1

    def texts() -> Iterator[str]:
        nonlocal line_number
        for line_number, line in lines:  # noqa: B007 - it says which line the reader has come to
            yield line.decode("utf-8", errors="replace") + "\n"

    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    while True:
        record: Row | FieldError
        try:
            cells = next(reader, None)
            if cells is None:
                return
            found = f"expected {len(columns)} columns, found {len(cells)}"
            record = FieldError(Reason.BROKEN_RECORD, found)
            if len(cells) == len(columns):
                record = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        except csv.Error as error:
            record = FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns: {error}")
        yield f"{name}:{line_number}", record
