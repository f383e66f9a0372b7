"""The indexes that a process has open, with what it remembers of each: names, facets, texts that were read.

What is remembered is found again by content and bounded. An article that is ranked is read once for all processes
(`articles.py`); what is remembered here is for comparisons and placements.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache

from newsroom.pages.archives import Choice
from newsroom.pages.entities import Gazetteer
from newsroom.search.archive import Archive
from newsroom.search.placement import sentence_vectors
from newsroom.search.queries import Query, QueryReader, SourceText
from pipelines.sources.text import found_language
from training.data.ragged import Float32

MOST_OPEN = 2  # champion and challenger
FACETS_KEPT, TEXTS_KEPT = 256, 64


class Opened:
    """An open index.

    Attributes:
        archive: the index and what reads queries.
        gazetteer: the names that it knows.
        queries: reads queries.
        facets: of filters, counted once.
        languages: that the model knows; (): any.
        language: of a text, found out once.
    """

    def __init__(self, choice: Choice, reading: Sequence[str]) -> None:
        self._open = ExitStack()
        self.archive = self._open.enter_context(Archive(choice.uri, reading))
        self.gazetteer = Gazetteer(self.archive.index.records)
        self.queries = queries = QueryReader(self.archive.index.model, self.archive.reader)
        self._read = lru_cache(TEXTS_KEPT)(lambda texts, of: queries.read(Query(texts=dict(texts), language=of)))
        self._sentences = lru_cache(TEXTS_KEPT)(lambda sentences, of: sentence_vectors(queries, sentences, of))
        self.languages = self.archive.index.model.card.config.needs.languages
        self.language = lru_cache(TEXTS_KEPT)(lambda text: found_language(text, self.languages))
        self.facets = lru_cache(FACETS_KEPT)(self.archive.index.records.facets)

    def read(self, query: Query) -> tuple[Float32 | None, Sequence[SourceText]]:
        """Return the vector of a query's texts (None: it has none) and the texts as the model read them, once each."""
        return self._read(tuple(query.given.items()), query.language) if query.given else (None, ())

    def sentences(self, sentences: Sequence[str], language: str) -> Float32:
        """Return S x d vectors of an article's sentences, which are read once: pictures are moved again and again."""
        return self._sentences(tuple(sentences), language)

    def close(self) -> None:
        """Close it."""
        self._open.close()


class OpenArchives:
    """At most MOST_OPEN open indexes; the one that was used longest ago is closed for another."""

    def __init__(self, reading: Sequence[str]) -> None:
        self._reading = reading
        self._open: OrderedDict[tuple[str, str], Opened] = OrderedDict()

    @property
    def contents(self) -> frozenset[tuple[str, str]]:
        """Return which are open (`Choice.content`)."""
        return frozenset(self._open)

    def opened(self, choice: Choice) -> Opened:
        """Return an index, opened.

        Raises:
            NotFoundError: it is not there any more.
            IntegrityError: it is not whole.
        """
        if choice.content not in self._open:
            self._open[choice.content] = Opened(choice, self._reading)
        self._open.move_to_end(choice.content)
        if len(self._open) > MOST_OPEN:
            _, last = self._open.popitem(last=False)
            last.close()
        return self._open[choice.content]
