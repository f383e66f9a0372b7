"""The words that are known of pictures, in an index of tantivy: pictures in order of BM25, phrases, filters.

A part of an index has its words as segments, which are written once. To search them, the segments of all parts are
opened as one index, whose `meta.json` is a list of segments: statistics of words are over all. Rows are numbered
through the parts. Words are compared without capitals and accents.

BM25 (Robertson and Zaragoza 2009; k1 = 1.2, b = 0.75) is computed of each field and summed up.
"""

import json
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import numpy as np
import pyarrow as pa

from newsroom.archive.filters import COMPARED, EQUAL, SHOWN_WITH, WORDS, Condition, Filters
from newsroom.archive.vectors import Ranked, library
from schemas.messages import IntegrityError
from training.data.ragged import Bool, Int64

LEXICAL_WORDS = 64  # of a text, the rarest
ROWS_AT_ONCE = 10_000
COMMON_SHARE = 0.2  # a word in more pictures is not selective: its weight in BM25 is next to nothing
KEPT_WORDS = 100_000  # of which it is known how many pictures have them
FIELDS = (*WORDS, SHOWN_WITH)
HEAP_BYTES = 600_000_000  # of a segment that is being written; what exceeds it becomes another one
_COLUMNS = {**{name: name for name in (*FIELDS, *EQUAL)}, "date": "day", "width": "width", "height": "height"}
_EQUAL, _ROW, _ANALYSER, _META = "equal", "row", "words", "meta.json"
_MARKS = re.compile("[\u0300-\u036f]")


def write_words(rows: pa.Table, folder: Path, key: str) -> None:
    """Write the words of some pictures; the same rows and key give the same bytes.

    Args:
        rows: of `FIELDS_SCHEMA`.
        folder: that is made.
        key: 32 hexadecimal digits that no other part of the index has.
    """
    folder.mkdir(parents=True)
    _write(rows, str(folder))
    meta = json.loads((folder / _META).read_text(encoding="utf-8"))
    for number, segment in enumerate(meta["segments"]):
        name = UUID(int=int(key, 16) ^ number)
        for path in folder.glob(f"{UUID(segment['segment_id']).hex}.*"):
            path.rename(path.with_stem(name.hex))
        segment["segment_id"] = str(name)
    for path in folder.glob(".*"):
        path.unlink()
    (folder / _META).write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n", encoding="utf-8")


class Words:
    """The words of the pictures of an index; may be used by several threads.

    Args:
        index: of tantivy.
        starts: of each segment, the first row of its part.
        live: which rows are of pictures that are there; None: all.
    """

    def __init__(self, index: Any, starts: Int64, live: Bool | None = None) -> None:
        index.register_tokenizer(_ANALYSER, _analyser())
        index.config_reader("manual")  # it is not written to any more: its files need not be watched
        self._schema, self._searcher, self._starts, self._live = index.schema, index.searcher(), starts, live
        # How many pictures have a word in the field that has it most often: six fields of each segment are asked.
        self._having = lru_cache(KEPT_WORDS)(
            lambda word, fields: max(int(self._searcher.doc_freq(field, word)) for field in fields)
        )

    @classmethod
    def open(cls, folders: Sequence[Path], starts: Int64, live: Bool | None = None) -> Self:
        """Return the words that `write_words` wrote for each part, mapped into memory: several processes share them.

        Raises:
            IntegrityError: another version of the library wrote them.
        """
        metas = [json.loads((folder / _META).read_text(encoding="utf-8")) for folder in folders]
        segments = [meta["segments"] for meta in metas]
        # A folder of links, until all is open. The engine's thread that watches it may make a lock in it meanwhile.
        with tempfile.TemporaryDirectory(prefix="multilink-words-", ignore_cleanup_errors=True) as scratch:
            for path in (path for folder in folders for path in folder.iterdir() if path.name != _META):
                Path(scratch, path.name).symlink_to(path.absolute())
            Path(scratch, _META).write_text(json.dumps(metas[0] | {"segments": [*chain(*segments)]}), encoding="utf-8")
            try:
                index = tantivy().Index.open(scratch)
            except ValueError as problem:
                raise IntegrityError(f"{folders[0]}: the words cannot be read; make the index again") from problem
            return cls(index, np.repeat(starts, list(map(len, segments))), live)

    def rank(self, text: str, count: int, filters: Filters = (), *, fields: Sequence[str] = FIELDS) -> Ranked:
        """Return the pictures whose words a text shares, by BM25; none where it shares no selective word.

        Args:
            text: of any length; its LEXICAL_WORDS rarest words count.
            count: at most so many.
            filters: which pictures are searched.
            fields: whose words are searched.
        """
        found = [self._term(field, word) for word in self._selective(text, fields) for field in fields]
        if not found or not count:
            return Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        query, most = _joined(found), count
        if filters:
            query = _joined([query, tantivy().Query.const_score_query(self._filter(filters), 0.0)], "Must")
        while True:
            ranked = self._search(query, most)
            live = np.flatnonzero(np.ones(len(ranked.rows), bool) if self._live is None else self._live[ranked.rows])
            if len(live) >= count or len(ranked.rows) < most:
                return Ranked(ranked.rows[live[:count]], ranked.scores[live[:count]])
            most *= 4

    def rows(self, condition: Condition) -> Int64:
        """Return the rows that meet a condition, those of pictures that are gone among them, in no order."""
        return self._search(self._condition(condition), max(1, self._searcher.num_docs)).rows

    def number(self, filters: Filters) -> int:
        """Return how many rows filters leave, those of pictures that are gone among them."""
        return int(self._searcher.search(self._filter(filters), limit=1).count)

    def _search(self, query: Any, limit: int) -> Ranked:
        hits = self._searcher.search(query, limit=limit, count=False).hits
        rows = self._searcher.fast_field_values(_ROW, [at for _, at in hits])
        segments = np.fromiter((at.segment_ord for _, at in hits), np.int64, len(hits))
        scores = np.fromiter((score for score, _ in hits), np.float32, len(hits))
        return Ranked(np.array(rows, np.int64) + self._starts[segments], scores)

    def _selective(self, text: str, fields: Sequence[str]) -> list[str]:
        """Return the rarest different words of a text, without those that very many pictures have."""
        most = max(1, COMMON_SHARE * self._searcher.num_docs)
        words = dict.fromkeys(words_of(text))
        having = {word: self._having(word, tuple(fields)) for word in words}
        selective = (word for word, number in having.items() if 0 < number <= most)
        return sorted(selective, key=having.__getitem__)[:LEXICAL_WORDS]

    def _term(self, field: str, word: str) -> Any:
        return tantivy().Query.term_query(self._schema, field, word, "basic" if field == _EQUAL else "freq")

    def _filter(self, filters: Filters) -> Any:
        return _joined([self._condition(each) for each in filters] or [tantivy().Query.all_query()], "Must")

    def _condition(self, condition: Condition) -> Any:
        """Return a condition as a query."""
        query, name, words = tantivy().Query, condition.field, words_of(condition.phrase)
        if name in COMPARED:
            integer = tantivy().FieldType.Integer
            found = query.range_query(self._schema, name, integer, condition.low, condition.high)
        elif condition.value:
            found = self._term(_EQUAL, f"{name}={condition.value}")
        else:
            fields = ((name,) if name else FIELDS) if words else ()
            several = len(words) > 1
            found = _joined([
                query.phrase_query(self._schema, field, words) if several else self._term(field, words[0])
                for field in fields
            ])  # fmt: skip
        if not condition.is_negated:
            return found
        return query.boolean_query([(tantivy().Occur.Must, query.all_query()), (tantivy().Occur.MustNot, found)])


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are compared: without capitals and accents."""
    found: list[str] = _analyser().analyze(_unaccented(text))
    return found


def plain(text: str) -> str:
    """Return the words of a text as they are compared, with spaces between them."""
    return " ".join(words_of(text))


def _unaccented(text: str) -> str:
    return text if text.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", text))


def _joined(queries: Sequence[Any], occur: str = "Should") -> Any:
    return tantivy().Query.boolean_query([(getattr(tantivy().Occur, occur), each) for each in queries])


def _write(rows: pa.Table, folder: str) -> None:
    """Write a new index with the words of some pictures."""
    index = tantivy().Index(_schema(), path=folder)
    index.register_tokenizer(_ANALYSER, _analyser())
    writer = index.writer(HEAP_BYTES, 1)  # in one thread: the same rows, the same bytes
    for document in _documents(rows):
        writer.add_document(tantivy().Document.from_dict(document, index.schema))
    writer.commit()
    writer.wait_merging_threads()


def _documents(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield what tantivy is given of each row."""
    row = 0
    for batch in rows.select([*_COLUMNS.values()]).to_batches(ROWS_AT_ONCE):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            said = {name: value for name, value in zip(_COLUMNS, values, strict=True) if value}
            equal = [f"{name}={said[name].lower()}" for name in EQUAL if name in said]
            numbers = {name: said[name] for name in COMPARED if name in said}
            yield {
                **{
                    name: _unaccented(value) if isinstance(value := said[name], str) else [*map(_unaccented, value)]
                    for name in FIELDS
                    if name in said
                },
                **numbers,
                _EQUAL: equal,
                _ROW: row,
            }
            row += 1


@cache
def _schema() -> Any:
    made = tantivy().SchemaBuilder()
    for name in FIELDS:
        made.add_text_field(name, tokenizer_name=_ANALYSER, index_option="position")
    made.add_text_field(_EQUAL, tokenizer_name="raw", index_option="basic")
    for name in (*COMPARED, _ROW):
        made.add_integer_field(name, fast=True)
    return made.build()


@cache
def _analyser() -> Any:
    made, filters = tantivy().TextAnalyzerBuilder(tantivy().Tokenizer.simple()), tantivy().Filter
    return made.filter(filters.lowercase()).filter(filters.ascii_fold()).build()


def tantivy() -> Any:
    """Return the library that ranks by words; raises as `library`."""
    return library("tantivy")
