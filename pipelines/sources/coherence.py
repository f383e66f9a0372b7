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
from dataclasses import dataclass

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.sources.candidate import CandidateDocument, sentence
from pipelines.sources.records import UNKNOWN, FieldError, outcomes_of
from schemas.documents import Link, Provenance, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason

Row = dict[str, str]  # cells by column name, without space around them
LANGUAGE = "en"
_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})
_SPELLED = re.compile(r"\\(?:[tnr]|xa0|u(00[01a][0-9a-f]))")
_ROW_NUMBERS = ("", "Unnamed: 0")  # what pandas names the column it writes its row numbers to


@dataclass(frozen=True, slots=True)
class Pair:
    """What a row gives, its relations apart."""

    text: str
    uri: str
    split: Split
    record_id: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFile:
    """A file of pairs: its data set, its part, the columns it must have, and those of its relations, likeliest last."""

    path: str
    dataset: str
    part: str
    columns: tuple[str, ...]
    relations: Mapping[str, tuple[str, ...]]

    def read(self, pair_of: Callable[[Row], Pair]) -> Iterator[CandidateDocument | Failure]:
        """Yield the document of each row, or why there is none.

        Its id is `<part>-<row number>`, the number being pandas' where the file has it, else `line` and the line's.

        Raises:
            BuildError: the text's column, the image's, or those of all relations are missing.
        """
        table = read_table(self.path)
        names = {
            relation: next((name for name in among if name in table.columns), None)
            for relation, among in self.relations.items()
        }
        missing = [name for name in self.columns if name not in table.columns]
        if not any(names.values()):
            missing += [among[-1] for among in self.relations.values()]
        if missing:
            found = ", ".join(table.columns)[:200]
            raise BuildError(f"{self.path}: expected the columns {', '.join(missing)}; found {found}")

        def document(row: Row, document_id: str) -> list[CandidateDocument]:
            pair = pair_of(row)
            text = sentence(html.unescape(_SPELLED.sub(_spelled, pair.text)))
            if not text.text:
                raise FieldError(Reason.EMPTY_SENTENCE, "expected a text, found it blank")
            relations = tuple((relation, _label(row[name], name) if name else None) for relation, name in names.items())
            made = CandidateDocument(
                id=document_id,
                dataset=self.dataset,
                sentences=(text,),
                image_uris=(pair.uri,),
                links=(Link(0, 0, relations),),
                provenance=Provenance(self.dataset, pair.record_id or document_id, pair.url),
                language=LANGUAGE,
                split=pair.split,
            )
            return [made]

        yield from outcomes_of(((self._id(where, row), row) for where, row in table.rows), document)

    def _id(self, where: str, row: Row | FieldError) -> str:
        if isinstance(row, FieldError):
            return where
        number = next((row[name] for name in _ROW_NUMBERS if row.get(name)), f"line{where.rpartition(':')[2]}")
        return f"{self.part}-{number}"


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


@dataclass(frozen=True, slots=True)
class Table:
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
            found = f"expected {len(columns)} columns, found {len(cells)}"
            record = FieldError(Reason.BROKEN_RECORD, found)
            if len(cells) == len(columns):
                record = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        except csv.Error as error:
            record = FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns: {error}")
        yield f"{name}:{line_number}", record
