"""What is known of the pictures of an index: columns of Arrow, mapped into memory; filters on them, facets.

Rows are numbered through the parts of the index. A condition on a value is compared in a column of all rows at once,
which takes less than a query of any index; one on words is answered by `words.py`, and the answer is kept, a bit a
row: a common name takes 0.3 s, and an editor keeps a filter. May be used by several threads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from textwrap import shorten
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from newsroom.archive.filters import COMPARED, EQUAL, SHOWN_WITH, WORDS, Condition, Filters
from newsroom.archive.vectors import by_part
from newsroom.archive.words import Words
from schemas import indexes
from schemas.indexes import FIELDS_SCHEMA, PLACES_SCHEMA
from schemas.messages import NotFoundError
from schemas.metadata import Metadata
from schemas.tables import check_schema
from training.data.ragged import Bool, Int32, Int64, UInt8, UInt64

FACETS = ("date", "credit", "licence", "orientation")
FACET_VALUES = 20
MAX_VALUES = 100_000
MAX_TITLE = 80  # characters
MOST_KEPT, KEPT_BYTES = 1_000, 64_000_000  # answers to conditions on words
DESCRIBED = (*WORDS, "date", "licence", SHOWN_WITH)
_DAYS_A_YEAR = 10_000  # of dates as YYYYMMDD
_HASH = re.compile("[0-9a-f]{64}")


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
    def title(self) -> str:
        """Return the first words of what is known of it: its title, caption, use, keywords or place; else ""."""
        stated = self.metadata
        known = (stated.title, stated.caption, self.shown_with, ", ".join(stated.keywords), stated.place)
        return shorten(next(filter(None, known), ""), MAX_TITLE, placeholder=" …")


class Records:
    """The pictures of an index.

    Args:
        parts: rows of `FIELDS_SCHEMA`, those of a part in order of their keys.
        places: of all rows, `PLACES_SCHEMA`.
        words: folders of the words of each part.

    Attributes:
        count: pictures that are in the version.
        is_live: of every row, whether its picture is.
        live: rows of these, ascending; None: all.
        words: of all rows.
    """

    def __init__(self, parts: Sequence[pa.Table], places: pa.Table, words: Sequence[Path]) -> None:
        self.parts, self._places = tuple(parts), places
        self.starts: Int64 = np.cumsum([0, *(part.num_rows for part in parts)])
        self.is_live: Bool = places.column("part").is_valid().to_numpy()
        self.count = int(self.is_live.sum())
        self.live: Int64 | None = None if self.count == len(places) else np.flatnonzero(self.is_live)
        self._keys: list[UInt64] = [part.column("key").to_numpy() for part in parts]
        self.words = Words.open(words, self.starts[:-1], None if self.live is None else self.is_live)
        self._with_words = lru_cache(min(MOST_KEPT, 1 + 8 * KEPT_BYTES // (1 + len(places))))(self._bits)

    @classmethod
    def open(cls, parts: Sequence[Path], places: Path) -> Self:
        """Return the pictures of an index's files, mapped into memory: several processes share them."""
        tables = [read_table(part / indexes.FIELDS, FIELDS_SCHEMA) for part in parts]
        return cls(tables, read_table(places, PLACES_SCHEMA), [part / indexes.WORDS for part in parts])

    def newest(self, count: int) -> Int64:
        """Return the rows of the pictures with the latest dates, the latest first; those without a date are last."""
        days = np.where(self.is_live, self._numbers["date"], -2)
        rows = np.argsort(-days, kind="stable")[:count]
        return np.asarray(rows[self.is_live[rows]], np.int64)

    def rows_with(self, keys: UInt64) -> Int64:
        """Return the row of the picture that is in the version of each key; -1: there is none."""
        found = np.full(len(keys), -1, np.int64)
        for start, own in zip(self.starts.tolist(), self._keys, strict=False):
            rows = start + np.minimum(np.searchsorted(own, keys), len(own) - 1)
            is_here = (own[rows - start] == keys) & self.is_live[rows]
            found[is_here] = rows[is_here]
        return found

    def rows_of(self, images: Sequence[str]) -> list[int | None]:
        """Return the row of each content hash, None where it is not in the index."""
        known = [int(image[:16], 16) if _HASH.fullmatch(image) else 0 for image in images]
        rows = self.rows_with(np.array(known, np.uint64))
        there = np.flatnonzero(rows >= 0)
        hashes = dict(zip(there.tolist(), self.take(rows[there], ("image",)).column(0).to_pylist(), strict=True))
        return [int(row) if hashes.get(number) == images[number] else None for number, row in enumerate(rows)]

    def rows_named(self, images: Sequence[str]) -> Int64:
        """Return the row of each content hash.

        Raises:
            NotFoundError: one is not in the index.
        """
        rows = self.rows_of(images)
        if None in rows:
            raise NotFoundError(f"image {images[rows.index(None)][:16]}: not in this index")
        return np.array(rows, np.int64)

    def take(self, rows: Int64, columns: Sequence[str] = tuple(FIELDS_SCHEMA.names)) -> pa.Table:
        """Return some columns of rows, in the given order."""
        order, tables = [np.zeros(0, np.int64)], [self.parts[0].select(columns).slice(0, 0)]
        for number, places in by_part(self.starts, rows):
            order.append(places)
            tables.append(self.parts[number].select(columns).take(rows[places] - self.starts[number]))
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks().take(np.argsort(np.concatenate(order)))

    def pictures(self, rows: Sequence[int]) -> list[Picture]:
        """Return the pictures of rows, in the given order."""
        wanted = np.asarray(rows, np.int64)
        known, places = self.take(wanted).to_pylist(), self._places.take(wanted).to_pylist()
        return [_picture(row | place) for row, place in zip(known, places, strict=True)]

    def select(self, filters: Filters) -> Int64 | None:
        """Return the ascending rows that filters leave; None where there is no filter."""
        if not filters:
            return None
        return np.flatnonzero(reduce(np.logical_and, (self._mask(condition) for condition in filters), self.is_live))

    def number(self, filters: Filters) -> int:
        """Return how many pictures filters leave."""
        if self.live is None:
            return self.words.number(filters)
        selected = self.select(filters)
        return self.count if selected is None else len(selected)

    def facets(self, filters: Filters = ()) -> dict[str, list[tuple[str, int]]]:
        """Return the commonest values of each facet among the pictures that filters leave, with their numbers."""
        selected = self.select(filters)
        rows = self.live if selected is None else selected
        return {name: self._values[name].commonest(rows) for name in FACETS}

    def described(self) -> dict[str, int]:
        """Return how many pictures have each field."""
        lengths = pc.list_value_length(self._all("keywords")).to_numpy()
        valid = {name: self._all(name).is_valid().to_numpy() for name in DESCRIBED} | {"keywords": lengths > 0}
        return {name: int((valid[name] & self.is_live).sum()) for name in DESCRIBED}

    def values(self, name: str) -> list[str]:
        """Return the different values of `place`, `credit` or `keywords`, at most MAX_VALUES, in order."""
        column = self._all(name).filter(pa.array(self.is_live))
        if pa.types.is_list(column.type):
            column = pc.list_flatten(column)
        found: list[str] = pc.unique(column.cast(pa.large_string()).drop_null()).sort().to_pylist()
        return found[:MAX_VALUES]

    def _mask(self, condition: Condition) -> Bool:
        """Return of every row whether it meets a condition."""
        name = condition.field
        if condition.phrase:
            mask = np.unpackbits(self._with_words(name, condition.phrase), count=len(self.is_live)).view(bool)
        elif name in COMPARED:
            mask = (self._numbers[name] >= condition.low) & (self._numbers[name] <= condition.high)
        else:
            mask = self._values[name].are(condition.value)
        return ~mask if condition.is_negated else mask

    def _bits(self, name: str, phrase: str) -> UInt8:
        """Return of every row whether a field ("": any) has a phrase, eight rows a number."""
        mask = np.zeros(len(self.is_live), bool)
        mask[self.words.rows(Condition(field=name, phrase=phrase))] = True
        return np.packbits(mask)

    def _all(self, name: str) -> pa.ChunkedArray:
        return pa.chunked_array([chunk for part in self.parts for chunk in part.column(name).chunks])

    @cached_property
    def _numbers(self) -> dict[str, Int32]:
        """The numbers of all rows that can be compared; -1: there is none."""
        columns = {"date": "day", "width": "width", "height": "height"}
        return {name: self._all(column).fill_null(-1).to_numpy() for name, column in columns.items()}

    @cached_property
    def _values(self) -> "dict[str, _Column]":
        """The values of all rows that are equal or not, and the years."""
        years = np.where(self._numbers["date"] < 0, -1, self._numbers["date"] // _DAYS_A_YEAR)
        of_years = _Column(tuple(f"{year:04d}" for year in range(_DAYS_A_YEAR)), years)
        return {"date": of_years, **{name: _Column.of(self._all(name).chunks) for name in EQUAL}}


@dataclass(frozen=True, slots=True)
class _Column:
    """A value of every picture, whatever the case of letters: the values, and the number of each row's; -1: none."""

    values: tuple[str, ...]
    codes: Int32

    @classmethod
    def of(cls, chunks: Iterable[pa.DictionaryArray]) -> Self:
        values: dict[str, tuple[int, str]] = {}  # in small letters -> number, as it was first written
        codes = [np.zeros(0, np.int32)]
        for chunk in chunks:
            spelled = chunk.dictionary.to_pylist()
            numbers = [values.setdefault(each.lower(), (len(values), each))[0] for each in spelled]
            codes.append(np.array([*numbers, -1], np.int32)[chunk.indices.fill_null(len(spelled)).to_numpy()])
        return cls(tuple(spelled for _, spelled in values.values()), np.concatenate(codes))

    def are(self, value: str) -> Bool:
        """Return which rows have a value, given in small letters."""
        number = next((number for number, each in enumerate(self.values) if each.lower() == value), len(self.values))
        return np.equal(self.codes, number)

    def commonest(self, rows: Int64 | None) -> list[tuple[str, int]]:
        """Return the FACET_VALUES commonest values of rows (None: all), with their numbers."""
        codes = self.codes if rows is None else self.codes[rows]
        numbers = np.bincount(codes + 1, minlength=len(self.values) + 1)[1:]
        found = [(self.values[code], int(numbers[code])) for code in np.flatnonzero(numbers)]
        return sorted(found, key=lambda each: (-each[1], each[0]))[:FACET_VALUES]


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Return a file's rows, mapped into memory.

    Raises:
        IntegrityError: they are not of this schema.
    """
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    check_schema(table.schema, schema, where=str(path))
    return table


def write_table(table: pa.Table, path: Path) -> None:
    """Write rows so that they are read where they lie: uncompressed, in one piece."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _picture(row: dict[str, Any]) -> Picture:
    metadata = {item.name: row[item.name] for item in fields(Metadata) if item.name in row}
    own = {item.name: row[item.name] for item in fields(Picture) if item.name in row}
    return Picture(**own, metadata=Metadata(**metadata | {"keywords": tuple(row["keywords"])}))
