"""Pairs of a text and an image whose relations people judged: what CITE and CLUE share (Alikhani 2022; SPEC 2).

A row of a CSV file is a document of one sentence and one image, linked, the link carrying each relation as true, false
or unknown. The columns of each data set, and where its splits and images come from, are in `cite.py` and `clue.py`.
Files are streamed; a row that is not as the header says is a failure row of its own.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.sources.candidate import CandidateDocument, sentence
from pipelines.sources.records import UNKNOWN, WEB, FieldError, outcomes_of
from schemas.documents import Link, Provenance, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason

Row = dict[str, str]  # cells by column name, without space around them
LANGUAGE = "en"
_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})
_SPELLED = re.compile(r"\\(?:[tnr]|xa0|u(00[01a][0-9a-f]))")
_ROW_NUMBERS = ("", "Unnamed: 0")  # what pandas names the column it writes its row numbers to


def read_pairs(
    path: str,
    dataset: str,
    part: str,
    *,
    relations: Mapping[str, tuple[str, ...]],
    columns: tuple[str, str, str],
    image_of: Callable[[Row], tuple[str, Split]],
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each row of a file, or why there is none.

    Its id is `<part>-<row number>`, the number being pandas' where the file has it, else `line` and the line's.

    Args:
        path: of the file.
        dataset: name of the data set.
        part: of the data set, that the file is.
        relations: the columns that may hold each, the likeliest last.
        columns: of the text, of the image, and of the record's own id, which may be missing.
        image_of: returns a row's image address and split, or raises FieldError.

    Raises:
        BuildError: the text's column, the image's, or those of all relations are missing.
    """
    text_column, image_column, id_column = columns
    table = read_table(path)
    names = {
        relation: next((name for name in among if name in table.columns), None) for relation, among in relations.items()
    }
    missing = [name for name in (image_column, text_column) if name not in table.columns]
    missing += [] if any(names.values()) else [among[-1] for among in relations.values()]
    if missing:
        found = ", ".join(table.columns)[:200]
        raise BuildError(f"{path}: expected the columns {', '.join(missing)}; found {found}")

    def document(row: Row, document_id: str) -> list[CandidateDocument]:
        uri, split = image_of(row)
        text = sentence(html.unescape(_SPELLED.sub(_spelled, row[text_column])))
        if not text.text:
            raise FieldError(Reason.EMPTY_SENTENCE, "expected a text, found it blank")
        labels = tuple((relation, _label(row[name], name) if name else None) for relation, name in names.items())
        url = row[image_column] if row[image_column].startswith(WEB) else None
        made = CandidateDocument(
            id=document_id,
            dataset=dataset,
            sentences=(text,),
            image_uris=(uri,),
            links=(Link(0, 0, labels),),
            provenance=Provenance(dataset, row.get(id_column) or document_id, url),
            language=LANGUAGE,
            split=split,
        )
        return [made]

    yield from outcomes_of(((_id(where, row, part), row) for where, row in table.rows), document)


def _id(where: str, row: Row | FieldError, part: str) -> str:
    if isinstance(row, FieldError):
        return where
    number = next((row[name] for name in _ROW_NUMBERS if row.get(name)), f"line{where.rpartition(':')[2]}")
    return f"{part}-{number}"


def _label(cell: str, name: str) -> bool | None:
    """Return what a cell says; a blank is unknown (A's code took it for false)."""
    value = cell.lower()
    if value in UNKNOWN:
        return None
    if value not in _TRUE and value not in _FALSE:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected true, false or nothing, found {cell[:40]!r}")
    return value in _TRUE


def _spelled(found: re.Match[str]) -> str:
    """Return the character that a file spells with a backslash: a control character, or white space."""
    return chr(int(found.group(1), 16)) if found.group(1) else " "


class Table(NamedTuple):
    """A file's columns, and its rows, which can be read once, each under `<file name>:<line>`."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[str, Row | FieldError]]


def read_table(path: str) -> Table:
    """Return the columns and rows of a CSV file with a header, whose delimiter is the pipe or comma it has more of.

    Raises:
        BuildError: there is no header.
        NotFoundError: there is no such file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # of the process: there is no other
    lines = read_lines(path)
    try:
        header = next(lines, (0, b""))[1].decode("utf-8-sig", errors="replace")
    except BrokenInputError as problem:
        raise BuildError(f"{path}: expected a header, found {problem}") from problem
    delimiter = "|" if header.count("|") > header.count(",") else ","
    columns = tuple(cell.strip() for cell in header.split(delimiter))
    if not header:
        raise BuildError(f"{path}: expected a header, found an empty file")
    return Table(columns, _rows(lines, columns, input_file(path).name, delimiter))


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
            record = FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns, found {len(cells)}")
            if len(cells) == len(columns):
                record = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        except csv.Error as error:
            record = FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns: {error}")
        yield f"{name}:{line_number}", record
