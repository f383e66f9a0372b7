"""Pairs of a text and an image whose relations people judged: what CITE and CLUE share (Alikhani 2022; SPEC 2).

A row of a CSV file is a document of one sentence and one image, linked, the link carrying each relation as true, false
or unknown. The columns of each data set, and where its splits and images come from, are in `cite.py` and `clue.py`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipelines.sources.candidate import CandidateDocument, sentence
from pipelines.sources.csv_table import Row, read_table
from pipelines.sources.records import UNKNOWN, FieldError, outcomes_of
from schemas.documents import Link, Provenance, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason

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
    delimiter: str | None = None

    def read(self, pair_of: Callable[[Row], Pair]) -> Iterator[CandidateDocument | Failure]:
        """Yield the document of each row, or why there is none.

        Its id is `<part>-<row number>`, the number being pandas' where the file has it, else `line` and the line's.

        Raises:
            BuildError: the text's column, the image's, or those of all relations are missing.
        """
        table = read_table(self.path, delimiter=self.delimiter)
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
