"""Pairs of a text and an image whose relations people judged: what CITE and CLUE share (Alikhani 2022; SPEC 2).

A row of a CSV file is a document of one sentence and one image, linked, the link carrying each relation as true, false
or unknown. The columns of each data set, and where its splits and images come from, are in `cite.py` and `clue.py`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.csv_rows import Row, Table
from pipelines.sources.fields import UNKNOWN, FieldError
from pipelines.sources.openings import InputFile
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason

LANGUAGE = "en"
_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})
_SPELLED_SPACE = re.compile(r"\\(?:[tnr]|xa0|u00[01][0-9a-f]|u00a0)")
_ROW_NUMBERS = ("", "Unnamed: 0")  # what pandas names the column it writes its row numbers to


@dataclass(frozen=True, slots=True)
class Format:
    """What one file is: its data set, its part, the columns it must have, and those of its relations."""

    dataset: str
    part: str
    columns: tuple[str, ...]
    relations: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Pair:
    """What a row gives, its relations apart."""

    text: str
    uri: str
    split: Split
    record_id: str
    url: str | None = None


def read_pairs(
    file: InputFile, table: Table, form: Format, read_row: Callable[[Row], Pair]
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each row of a file, or why there is none.

    Its id is `<part>-<row number>`, the number being pandas' where the file has it, else `line` and the line's.

    Raises:
        BuildError: the text's column, the image's, or those of all relations are missing.
    """
    columns = _relation_columns(file, table, form)
    seen: set[str] = set()
    for row in table.rows:
        if isinstance(row, Failure):
            yield row
            continue
        row_number = next((row.cells[name] for name in _ROW_NUMBERS if row.cells.get(name)), f"line{row.line}")
        document_id = f"{form.part}-{row_number}"
        try:
            if document_id in seen:
                message = f"expected one row of this number, found another at {file.name}:{row.line}"
                raise FieldError(Reason.DUPLICATE_RECORD, message)
            draft = _draft(document_id, read_row(row), _labels(row, columns), form.dataset)
        except FieldError as problem:
            yield problem.failure(document_id)
            continue
        seen.add(document_id)
        yield draft


def _relation_columns(file: InputFile, table: Table, form: Format) -> dict[str, str | None]:
    """Return the column of each relation, None where the file has none.

    Raises:
        BuildError: the text, the image, or every relation is missing.
    """
    missing = [name for name in form.columns if name not in table.columns]
    found = {
        relation: next((name for name in names if name in table.columns), None)
        for relation, names in form.relations.items()
    }
    if not any(found.values()):
        missing += [names[-1] for names in form.relations.values()]
    if missing:
        given = ", ".join(table.columns)[:200]
        raise BuildError(f"{file}: expected the columns {', '.join(missing)}; found {given}")
    return found


def _draft(
    document_id: str, pair: Pair, relations: tuple[tuple[str, bool | None], ...], dataset: str
) -> CandidateDocument:
    if not pair.text:
        raise FieldError(Reason.EMPTY_SENTENCE, "expected a text, found it blank")
    return CandidateDocument(
        id=document_id,
        dataset=dataset,
        sentences=(Sentence(pair.text),),
        image_uris=(pair.uri,),
        links=(Link(0, 0, relations),),
        provenance=Provenance(dataset, pair.record_id or document_id, pair.url),
        language=LANGUAGE,
        split=pair.split,
    )


def _labels(row: Row, columns: Mapping[str, str | None]) -> tuple[tuple[str, bool | None], ...]:
    return tuple((relation, _label(row.cells[name], name) if name else None) for relation, name in columns.items())


def _label(cell: str, name: str) -> bool | None:
    """Return what a cell says; a blank is unknown (A's code took it for false)."""
    value = cell.lower()
    if value in UNKNOWN:
        return None
    if value not in _TRUE and value not in _FALSE:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected true, false or nothing, found {cell[:40]!r}")
    return value in _TRUE


def text_of(cell: str) -> str:
    """Return a text without HTML entities and without tabs and the like that the files spell with a backslash."""
    return html.unescape(_SPELLED_SPACE.sub(" ", cell)).strip()
