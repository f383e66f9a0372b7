"""The indexes that a process has open, with what it remembers of each: names, facets, texts that were read.

What is remembered is found again by content and bounded. An article that is ranked is read once for all processes
(`articles.py`); what is remembered here is for comparisons and placements.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache

from orchestration.inference.archive import Archive
from orchestration.pages.archives import Choice
from orchestration.pages.entities import Gazetteer
from orchestration.pages.text_language import found_language
from training.data.ragged import Float32
from training.model import LinkModel
from training.retrieval.queries import Query, QueryReader, Reader, SourceText

MOST_OPEN = 2  # champion and challenger
FACETS_KEPT, TEXTS_KEPT = 256, 64


class Opened:
    """An open index.

    Attributes:
        archive: the index and what reads queries.
        gazetteer: the names that it knows.
        queries: reads queries, each text once.
        facets: of filters, counted once.
        languages: that the model knows; (): any.
        language: of a text, found out once.
    """

    def __init__(self, choice: Choice, reading: Sequence[str]) -> None:
        self._open = ExitStack()
        self.archive = self._open.enter_context(Archive(choice.uri, reading))
        self.gazetteer = Gazetteer(self.archive.index.records)
        self.queries = _RememberingReader(self.archive.index.model, self.archive.reader)
        self.languages = self.archive.index.model.card.config.needs.languages
        self.language = lru_cache(TEXTS_KEPT)(lambda text: found_language(text, self.languages))
        self.facets = lru_cache(FACETS_KEPT)(self.archive.index.records.facets)

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


class _RememberingReader(QueryReader):
    """Reads a text once, as long as it is among the last TEXTS_KEPT."""

    def __init__(self, model: LinkModel, reader: Reader) -> None:
        super().__init__(model, reader)
        plain = QueryReader(model, reader)
        read = lru_cache(TEXTS_KEPT)(lambda texts, language: plain.read(Query(texts=dict(texts), language=language)))
        object.__setattr__(self, "_remembered", read)  # a frozen class

    def read(self, query: Query) -> tuple[Float32, list[SourceText]]:
        found: tuple[Float32, list[SourceText]] = self._remembered(tuple(query.given.items()), query.language)  # type: ignore[attr-defined]
        return found
