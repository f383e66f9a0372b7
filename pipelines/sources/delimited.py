"""Rows of a file of values between commas, tabs, semicolons or pipes, with a header.

    Index|q2|qimg|stim_txt              a quoted cell may hold delimiters and line breaks
    0|True|1.jpg|"Cut the boards."

A stray quotation mark costs its own row alone: where what begins at a line is no row, that line is broken, and reading
goes on at the next line. A cell of more than `MAX_CELL_LINES` lines is no cell.
"""

import csv
from collections import deque
from collections.abc import Iterator
from itertools import islice

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.sources.records import FieldError, damage_of, utf8
from schemas.errors import BuildError
from schemas.failures import Reason

Row = dict[str, str]  # cells by column name, without space around them
Line = tuple[int, str]  # its number, and its text with the line break
MAX_CELL_LINES = 100
SUFFIXES = (".csv", ".tsv")
_DELIMITERS = ",|\t;"
_MANY_COLUMNS = 5  # as many by chance in each line of a text are unlikely


def read_table(path: str) -> tuple[list[str], Iterator[tuple[str, Row | FieldError]]]:
    """Return the columns of a file, and its rows, which can be read once, under `<file name>:<first line>`.

    The delimiter is the one that the header has most of.

    Raises:
        BuildError: there is no header.
        NotFoundError: there is no such file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # of the process: there is no other
    lines = read_lines(path)
    try:
        header = utf8(next(lines, (0, b""))[1])
    except (BrokenInputError, FieldError) as problem:
        raise BuildError(f"{path}: expected a header, found {problem}") from problem
    if not header:
        raise BuildError(f"{path}: expected a header, found an empty file")
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        columns = [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter))]
    except csv.Error as problem:
        raise BuildError(f"{path}: expected a header: {problem}") from problem
    return columns, _rows(lines, columns, input_file(path).name, delimiter)


def _rows(
    lines: Iterator[tuple[int, bytes]], columns: list[str], name: str, delimiter: str
) -> Iterator[tuple[str, Row | FieldError]]:
    problems: list[BrokenInputError] = []

    def texts() -> Iterator[Line]:
        try:
            for number, line in lines:
                yield number, line.decode("utf-8", errors="surrogateescape") + "\n"
        except BrokenInputError as problem:
            problems.append(problem)

    source, ahead = texts(), deque[Line]()
    while ahead or _read_on(source, ahead):
        where = f"{name}:{ahead[0][0]}"
        record, used = _record(source, ahead, columns, delimiter)
        yield where, record
        for _ in range(used):
            ahead.popleft()
    if problems:
        raise problems[0]


def _read_on(source: Iterator[Line], ahead: deque[Line]) -> bool:
    before = len(ahead)
    ahead.extend(islice(source, 1))
    return len(ahead) > before


def _record(
    source: Iterator[Line], ahead: deque[Line], columns: list[str], delimiter: str
) -> tuple[Row | FieldError, int]:
    """Return the row that begins with the first line ahead, and how many lines it has: one where it is broken."""
    used = size = 0

    def lines() -> Iterator[str]:
        nonlocal used, size
        while used < MAX_CELL_LINES and size <= MAX_LINE_BYTES and (used < len(ahead) or _read_on(source, ahead)):
            text = ahead[used][1]
            used, size = used + 1, size + len(text)
            yield text

    try:
        cells = next(csv.reader(lines(), delimiter=delimiter, strict=True))
    except csv.Error as problem:
        hint = f" within {used} lines; is a quotation mark missing?" if used > 1 else ""
        return FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns: {problem}{hint}"), 1
    if len(cells) != len(columns):
        return FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns, found {len(cells)}"), 1
    if used > 1 and len(columns) >= _MANY_COLUMNS and _are_rows(list(islice(ahead, 1, used)), len(columns), delimiter):
        message = f"a cell holds {used - 1} lines that are rows; is a quotation mark missing?"
        return FieldError(Reason.BROKEN_RECORD, message), 1
    if (damage := damage_of("".join(cells))) is not None:
        return damage, used
    return dict(zip(columns, (cell.strip() for cell in cells), strict=True)), used


def _are_rows(lines: list[Line], columns: int, delimiter: str) -> bool:
    """Return whether each line alone has as many cells as a row."""
    try:
        return all(len(next(csv.reader([text], delimiter=delimiter), [])) == columns for _, text in lines)
    except csv.Error:  # a carriage return alone
        return False
