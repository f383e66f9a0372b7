"""Rows of a CSV file that somebody else wrote: quoted commas and line breaks, stray quotes, a cut last line.

A row that does not have its header's number of columns is a failure, and never takes the rows after it along: what a
stray quote seemed to open is read again line by line. Blank lines are passed over, inside quotes too.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelines.sources.lines import MAX_LINE_BYTES, read_lines
from pipelines.sources.openings import BrokenInputError, InputFile, Place, input_file
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage

MAX_RECORD_LINES = 1_000  # quotes that stay open longer are stray


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line it starts on (from 1), and its cells by column name, without space around them."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns and its rows, which can be read once."""

    columns: tuple[str, ...]
    rows: Iterator[Row | Failure]


def read_table(place: Place, *, delimiter: str | None = None) -> Table:
    """Return the columns and rows of a file with a header; without a delimiter, pipe or comma, as the header has more.

    A failure is filed under `<file name>:<line>`.

    Raises:
        BuildError: there is no header.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # of the process: there is no other
    lines = _Lines(file)
    first = lines.take()
    if first is None:
        found = str(lines.problem) if lines.problem else "an empty file"
        raise BuildError(f"{file}: expected a header, found {found}") from lines.problem
    lines.give_back([(first[0], first[1].removeprefix("\ufeff"))])
    header = first[1]
    delimiter = delimiter or ("|" if header.count("|") > header.count(",") else ",")
    record = _next_record(lines, delimiter=delimiter, width=None)
    names = record[1] if record else []
    return Table(tuple(names), _rows(lines, names, file.name, delimiter))


class _Lines:
    """The lines of a file, some of which can be handed back.

    Attributes:
        problem: why the lines ended before the file did, once they have.
    """

    def __init__(self, file: InputFile) -> None:
        self.problem: BrokenInputError | None = None
        self._lines = read_lines(file)
        self._back: deque[tuple[int, str]] = deque()

    def take(self) -> tuple[int, str] | None:
        if self._back:
            return self._back.popleft()
        try:
            line = next(self._lines, None)
        except BrokenInputError as problem:
            self.problem = problem
            return None
        return None if line is None else (line[0], line[1].decode("utf-8", errors="replace"))

    def give_back(self, lines: list[tuple[int, str]]) -> None:
        self._back.extendleft(reversed(lines))


def _rows(lines: _Lines, names: list[str], file_name: str, delimiter: str) -> Iterator[Row | Failure]:
    while (record := _next_record(lines, delimiter=delimiter, width=len(names))) is not None:
        line, cells = record
        if len(cells) == len(names):
            yield Row(line, dict(zip(names, cells, strict=True)))
        else:
            message = f"expected {len(names)} columns, found {len(cells)}"
            yield Failure(Stage.SOURCES, f"{file_name}:{line}", Reason.BROKEN_RECORD, message)
    if lines.problem:
        yield lines.problem.failure()


def _next_record(lines: _Lines, *, delimiter: str, width: int | None) -> tuple[int, list[str]] | None:
    """Return the line and cells of the next record; None at the end.

    Where the quotes of a record do not close or give another number of columns than `width`, its first line is read
    without regard to quotes and the others are handed back.
    """
    taken: list[tuple[int, str]] = []
    try:
        cells = next(csv.reader(_feed(lines, taken), delimiter=delimiter, strict=True), [])
    except csv.Error:
        cells = []
    if not taken:
        return None
    number, text = taken[0]
    if not cells or width not in (None, len(cells)):
        lines.give_back(taken[1:])
        cells = text.split(delimiter)
    return number, [cell.strip() for cell in cells]


def _feed(lines: _Lines, taken: list[tuple[int, str]]) -> Iterator[str]:
    while len(taken) < MAX_RECORD_LINES and (line := lines.take()) is not None:
        taken.append(line)
        yield line[1] + "\n"
