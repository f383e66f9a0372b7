"""What is known of the pictures of an index, in SQLite: their fields, filters on them, facets.

    images   a row a picture; its number is that of the picture's vector
    words    FTS5 over title, caption, credit, place, keywords, and the captions of articles that showed it: for filters

The same pictures give the same bytes. An index is only read once it is made: connections are opened read-only, one a
thread, and never lock.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from schemas.errors import NotFoundError
from schemas.metadata import Metadata
from training.data.ragged import Int32, Int64
from training.retrieval.filters import NO_FILTERS, SHOWN_WITH, WORDS, Filters

FACETS = {"date": "substr(date, 1, 4)", "credit": "credit", "licence": "licence", "orientation": "orientation"}
FACET_VALUES = 20
MAX_VALUES = 100_000
_COLUMNS = (
    "row INTEGER PRIMARY KEY",
    "image TEXT NOT NULL",
    "part TEXT NOT NULL",
    "part_row INTEGER NOT NULL",
    "source TEXT",
    "format TEXT COLLATE NOCASE",
    "width INTEGER",
    "height INTEGER",
    "orientation TEXT COLLATE NOCASE",
    "cluster TEXT",
    "licence TEXT COLLATE NOCASE",
    "title TEXT",
    "caption TEXT",
    "credit TEXT COLLATE NOCASE",
    "date TEXT",
    "place TEXT",
    "keywords TEXT NOT NULL",
    f"{SHOWN_WITH} TEXT",
)
_NAMES = tuple(column.split()[0] for column in _COLUMNS)
_SETTINGS = ("page_size = 4096", "encoding = 'UTF-8'", "journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of an index.

    Attributes:
        image: content hash.
        part: path of the images part of the version that holds its copy.
        part_row: row in that part.
        source: URL or path it came from.
        format: of the original.
        width: of the original, px.
        height: of the original, px.
        cluster: of near-duplicates: the smallest hash among them; None: it has none.
        licence: as its source states it, else the rights in its metadata.
        metadata: by its file or its source.
        shown_with: captions of the articles that showed it.
    """

    image: str
    part: str = ""
    part_row: int = 0
    source: str | None = None
    format: str | None = None
    width: int | None = None
    height: int | None = None
    cluster: str | None = None
    licence: str | None = None
    metadata: Metadata = field(default_factory=Metadata)
    shown_with: str | None = None

    @property
    def orientation(self) -> str | None:
        """Return landscape, portrait or square."""
        if not self.width or not self.height:
            return None
        return "square" if self.width == self.height else "landscape" if self.width > self.height else "portrait"

    @property
    def description(self) -> str:
        """Return its title, caption, credit, place and keywords as one text."""
        values = (getattr(self.metadata, name) for name in WORDS)
        return " ".join(value if isinstance(value, str) else " ".join(value) for value in values if value)

    @property
    def label(self) -> str:
        """Return its title, else its caption, else where it came from."""
        return self.metadata.title or self.metadata.caption or self.source or ""

    @property
    def text(self) -> str:
        """Return its description, and the captions of the articles that showed it."""
        return " ".join(filter(None, (self.description, self.shown_with)))


def write_records(path: Path, pictures: Iterable[Picture]) -> dict[str, int]:
    """Write a new database of pictures, numbered from 0 in the given order; return how many have each field.

    Equal pictures give equal bytes, with one version of SQLite.
    """
    described = dict.fromkeys((*WORDS, "date", "licence", SHOWN_WITH), 0)

    def rows() -> Iterator[tuple[Any, ...]]:
        for number, picture in enumerate(pictures):
            values = _values(number, picture)
            for name in described:
                described[name] += values[_NAMES.index(name)] not in (None, "[]")
            yield values

    with sqlite3.connect(path, isolation_level=None) as database:
        for setting in _SETTINGS:
            database.execute(f"PRAGMA {setting}")
        database.execute(f"CREATE TABLE images ({', '.join(_COLUMNS)})")
        database.execute("BEGIN")
        database.executemany(f"INSERT INTO images VALUES ({', '.join('?' * len(_COLUMNS))})", rows())
        database.execute("COMMIT")
        for name in ("image", "date", "credit", "licence"):
            database.execute(f"CREATE INDEX by_{name} ON images ({name})")
        content = f"{', '.join((*WORDS, SHOWN_WITH))}, content='images', content_rowid='row'"
        database.execute(f"CREATE VIRTUAL TABLE words USING fts5({content}, tokenize='unicode61 remove_diacritics 2')")
        database.execute("INSERT INTO words(words) VALUES ('rebuild')")
        database.execute("INSERT INTO words(words) VALUES ('optimize')")
        database.execute("ANALYZE")
    database.close()
    return described


def _values(number: int, picture: Picture) -> tuple[Any, ...]:
    metadata = {item.name: getattr(picture.metadata, item.name) for item in fields(Metadata)}
    own = {name: getattr(picture, name) for name in _NAMES if hasattr(picture, name)}
    keywords = json.dumps(metadata["keywords"], ensure_ascii=False)
    licence = picture.licence or picture.metadata.rights
    found = metadata | own | {"row": number, "keywords": keywords, "licence": licence}
    return tuple(found[name] for name in _NAMES)


class Records:
    """The pictures of an index; may be used by several threads."""

    def __init__(self, path: Path) -> None:
        self._uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        self._local = threading.local()
        self.count = int(self._all("SELECT count(*) FROM images")[0][0])

    def select(self, filters: Filters) -> Int64 | None:
        """Return the ascending rows that filters leave; None where there is no filter."""
        if not filters.sql:
            return None
        # As one text: a third of the time of as many rows.
        ((text,),) = self._all(f"SELECT group_concat(row) FROM images WHERE {filters.sql}", filters.parameters)
        return np.sort(np.fromstring(text or "", np.int64, sep=","))

    def number(self, filters: Filters) -> int:
        """Return how many pictures filters leave."""
        return int(self._all(f"SELECT count(*) FROM images WHERE {filters.sql or 'TRUE'}", filters.parameters)[0][0])

    def values(self, field: str) -> list[str]:
        """Return the different values of `place`, `credit` or `keywords`, at most MAX_VALUES, in order."""
        of = {"place": "place", "credit": "credit", "keywords": "value"}[field]
        source = "images, json_each(keywords)" if field == "keywords" else "images"
        found = self._all(f"SELECT DISTINCT {of} FROM {source} WHERE {of} IS NOT NULL ORDER BY 1 LIMIT {MAX_VALUES}")
        return [str(value) for (value,) in found]

    def pictures(self, rows: Sequence[int]) -> list[Picture]:
        """Return the pictures of rows, in the given order."""
        stored = self._all(
            "SELECT * FROM images WHERE row IN (SELECT value FROM json_each(?))", [json.dumps(list(rows))]
        )
        found = {values[0]: _picture(dict(zip(_NAMES, values, strict=True))) for values in stored}
        return [found[row] for row in rows]

    def rows_of(self, images: Sequence[str]) -> list[int | None]:
        """Return the row of each content hash, None where it is not in the index."""
        named = "SELECT image, row FROM images WHERE image IN (SELECT value FROM json_each(?))"
        found = dict(self._all(named, [json.dumps(list(images))]))
        return [found.get(image) for image in images]

    def rows_named(self, images: Sequence[str]) -> Int64:
        """Return the row of each content hash.

        Raises:
            NotFoundError: one is not in the index.
        """
        rows = self.rows_of(images)
        if None in rows:
            raise NotFoundError(f"image {images[rows.index(None)][:16]}: not in this index")
        return np.array(rows, np.int64)

    def facets(self, filters: Filters = NO_FILTERS) -> dict[str, list[tuple[str, int]]]:
        """Return the commonest values of each facet among the pictures that filters leave, with their numbers."""
        rows = self.select(filters)
        return {name: column.commonest(rows) for name, column in self._columns.items()}

    @cached_property
    def _columns(self) -> dict[str, _Column]:
        """The facets of all pictures: counted in memory, a hundredth of the time of a query that groups."""
        return {
            name: _Column.of(value for (value,) in self._all(f"SELECT {value} FROM images ORDER BY row"))
            for name, value in FACETS.items()
        }

    def _all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        if not hasattr(self._local, "database"):
            self._local.database = sqlite3.connect(self._uri, uri=True)
        found: list[Any] = self._local.database.execute(statement, parameters).fetchall()
        return found


@dataclass(frozen=True, slots=True)
class _Column:
    """A facet of every picture: its values, whatever the case of letters, and the number of each row's; -1: none."""

    values: tuple[str, ...]
    codes: Int32

    @classmethod
    def of(cls, rows: Iterable[str | None]) -> _Column:
        values, numbers = list[str](), dict[str, int]()
        codes = [-1 if value is None else _code(value, values, numbers) for value in rows]
        return cls(tuple(values), np.array(codes, np.int32))

    def commonest(self, rows: Int64 | None) -> list[tuple[str, int]]:
        """Return the FACET_VALUES commonest values of rows (None: all), with their numbers."""
        codes = self.codes if rows is None else self.codes[rows]
        numbers = np.bincount(codes[codes >= 0], minlength=len(self.values)).tolist()
        found = [(value, number) for value, number in zip(self.values, numbers, strict=True) if number]
        return sorted(found, key=lambda each: (-each[1], each[0]))[:FACET_VALUES]


def _code(value: str, values: list[str], numbers: dict[str, int]) -> int:
    """Return the number of a value, a new one where it was not there yet."""
    number = numbers.setdefault(value.lower(), len(values))
    if number == len(values):
        values.append(value)
    return number


def _picture(row: Mapping[str, Any]) -> Picture:
    own = {item.name: row[item.name] for item in fields(Picture) if item.name in row}
    texts = {name: row[name] for name in ("title", "caption", "credit", "date", "place")}
    return Picture(**own, metadata=Metadata(**texts, keywords=tuple(json.loads(row["keywords"]))))
