"""What a page of the newsroom is asked for, by its address, and what is found for it.

    index=..  language=..  n=24  rank=fused  leave=headline.3  entity=Graz  where=date>=2019  like=HASH  unlike=HASH
    date=2019  credit=..  licence=..  orientation=..  picture=KEY  weak=1  influence=1

Parameters that repeat hold together. The texts are those of a kept article (`store.py`). Whoever has the article and
the address has the ranking: it is computed again from the same index.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from starlette.datastructures import QueryParams

from orchestration.pages.entities import Entity, Gazetteer, find_entities
from orchestration.pages.store import Article
from orchestration.pages.text_language import found_language
from orchestration.pages.words import ShownText, shown_texts
from schemas.documents import UNDETERMINED
from schemas.errors import UsageError
from training.retrieval.filters import parse_filters
from training.retrieval.queries import Query, QueryReader, Word
from training.retrieval.records import FACETS
from training.retrieval.search import MAX_TOP, RankBy, RankedImage, SearchResult, search

if TYPE_CHECKING:
    from orchestration.inference.archive import Archive
    from orchestration.pages.archives import Choice
    from orchestration.pages.state import Pages

COUNTS = (12, 24, 48, 96)
MOST_REPEATED = 64  # values of one parameter
LIKELY = 0.5
INFLUENCE_OF = 10  # first pictures whose similarity words add to
MOST_INFLUENCE = 60  # words whose influence is computed unasked: a text is read once for each


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchParameters:
    """The parameters of an address.

    Attributes:
        index: key of the index; "": the first.
        language: of the texts; "": it is found out.
        count: pictures that are shown.
        rank_by: what puts them in order.
        left_out: words that are not read.
        entities: names that the archive must say of a picture.
        where: conditions on its metadata.
        facets: values that its facets must have.
        like: pictures whose likes are wanted.
        unlike: those whose likes are not.
        picture: key of a picture that was uploaded; "": none.
        is_weak_shown: whether pictures are shown where none is likely.
        has_influence: whether the influence of many words is wanted.
    """

    index: str = ""
    language: str = ""
    count: int = COUNTS[0]
    rank_by: RankBy = RankBy.VISUAL
    left_out: frozenset[Word] = frozenset()
    entities: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    facets: tuple[tuple[str, str], ...] = ()
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    picture: str = ""
    is_weak_shown: bool = False
    has_influence: bool = False

    @classmethod
    def of(cls, given: QueryParams) -> SearchParameters:
        """Return what an address asks for.

        Raises:
            UsageError: a parameter has a value that it cannot have.
        """
        several = {name: tuple(filter(None, given.getlist(name))) for name in ("entity", "where", "like", "unlike")}
        words = given.getlist("leave")
        if max(map(len, (*several.values(), words))) > MOST_REPEATED * 8:
            raise UsageError(f"expected each parameter at most {MOST_REPEATED * 8} times")
        count, rank_by = given.get("n", str(COUNTS[0])), given.get("rank", RankBy.VISUAL)
        if not count.isdecimal() or not 1 <= int(count) <= max(COUNTS):
            raise UsageError(f"n={count!r}: expected 1 to {max(COUNTS)}")
        if rank_by not in list(RankBy):
            raise UsageError(f"rank={rank_by!r}: expected one of {', '.join(RankBy)}")
        return cls(
            index=given.get("index", ""),
            language=given.get("language", ""),
            count=int(count),
            rank_by=RankBy(rank_by),
            left_out=frozenset(map(_word, words)),
            entities=several["entity"],
            where=several["where"],
            facets=tuple((name, value) for name in FACETS if (value := given.get(name))),
            like=several["like"],
            unlike=several["unlike"],
            picture=given.get("picture", ""),
            is_weak_shown=given.get("weak") == "1",
            has_influence=given.get("influence") == "1",
        )

    @property
    def is_query(self) -> bool:
        """Whether it says without any text what is looked for."""
        return bool(self.like or self.picture)


@dataclass(frozen=True, slots=True)
class Group:
    """A picture that was found, and those that are nearly the same, which follow it in the ranking."""

    first: RankedImage
    folded: tuple[RankedImage, ...] = ()


@dataclass(frozen=True, slots=True)
class Instead:
    """A name that was typed and that the archive does not have, with those that come near."""

    typed: str
    proposed: tuple[Entity, ...]


class Coloured(StrEnum):
    """What the colours of words show: attention, or influence; nothing where that cannot be or takes long."""

    ATTENTION = "attention"
    INFLUENCE = "influence"
    TOO_LONG = "too-long"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """What was found.

    Attributes:
        query: that was searched with.
        result: the ranking.
        groups: pictures, near-duplicates folded; at most as many as were asked for.
        texts: as the model read them.
        coloured: what the colours of words show.
        entities: names in the texts.
        has_spacy: whether spaCy found them.
        instead: names that were typed and replaced.
        facets: values of each facet among the pictures that filters leave, with their numbers.
        is_hidden: whether no picture is likely, and none is shown.
        has_no_word: whether pictures are ranked by words, and none has one of them.
    """

    query: Query
    result: SearchResult
    groups: tuple[Group, ...]
    texts: tuple[ShownText, ...] = ()
    coloured: Coloured
    entities: tuple[Entity, ...] = ()
    has_spacy: bool = False
    instead: tuple[Instead, ...] = ()
    facets: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    is_hidden: bool = False
    has_no_word: bool = False


def language_of(asked: SearchParameters, article: Article, archive: Archive) -> str:
    """Return the language of the texts: stated, or found out among those that the model knows."""
    stated = asked.language or article.language
    if stated != UNDETERMINED and stated:
        return stated
    return found_language(" ".join(article.texts.values()), archive.index.model.card.config.needs.languages)


def find(shared: Pages, choice: Choice, article: Article, asked: SearchParameters) -> SearchOutcome:
    """Return what an address and an article ask for.

    Raises:
        UsageError: the model cannot read it, or a condition cannot be read.
        NotFoundError: a picture that is named is not there.
    """
    archive = shared.archives.opened(choice)
    gazetteer = shared.archives.gazetteer(choice)
    names, instead = _names(asked.entities, gazetteer)
    filters = parse_filters([*asked.where, *_conditions(asked.facets)], names)
    language = language_of(asked, article, archive)
    with _file(shared, asked.picture) as picture:
        query = Query(
            texts=article.texts, language=language, left_out=asked.left_out, picture=picture,
            like=asked.like, unlike=asked.unlike,
        )  # fmt: skip
        top = min(MAX_TOP, 3 * asked.count + 20)  # enough where some are folded
        result = search(archive.index, query, filters=filters, top=top, rank_by=asked.rank_by, reader=archive.reader)
    groups = fold(result.images)[: asked.count]
    texts, coloured = _texts(archive, query, result, asked)
    entities, has_spacy = find_entities(" ".join(article.texts.values()), language, gazetteer)
    return SearchOutcome(
        query=query,
        result=result,
        groups=groups,
        texts=tuple(texts),
        coloured=coloured,
        entities=tuple(entities),
        has_spacy=has_spacy,
        instead=instead,
        facets=shared.archives.facets(choice, filters),
        is_hidden=_is_hidden(result, asked),
        has_no_word=asked.rank_by is RankBy.LEXICAL and result.searched > 0 and not groups,
    )


def fold(images: Sequence[RankedImage]) -> tuple[Group, ...]:
    """Return the pictures of a ranking, each with those after it that are nearly the same."""
    found: dict[str, Group] = {}
    for each in images:
        key = each.picture.cluster or each.picture.image
        before = found.get(key)
        found[key] = replace(before, folded=(*before.folded, each)) if before else Group(each)
    return tuple(found.values())


def _word(text: str) -> Word:
    role, _, number = text.partition(".")
    if not number.isdecimal():
        raise UsageError(f"leave={text!r}: expected a role and the number of a word, such as headline.3")
    return role, int(number)


def _names(typed: Sequence[str], gazetteer: Gazetteer) -> tuple[list[str], tuple[Instead, ...]]:
    """Return the names that pictures are filtered by: those that were typed, or where there are none the nearest."""
    names, instead = [], []
    for name in typed:
        proposed = () if gazetteer.images(name) else tuple(gazetteer.proposed(name))
        if not gazetteer.images(name):
            instead.append(Instead(name, proposed))
        names.append(proposed[0].name if proposed else name)
    return names, tuple(instead)


def _conditions(facets: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in facets:
        if name == "date":
            if not value.isdecimal():
                raise UsageError(f"date={value!r}: expected a year")
            yield f"date>={value}"
            yield f"date<{int(value) + 1}"
        else:
            yield f"{name}={value}"


@contextmanager
def _file(shared: Pages, key: str) -> Iterator[str | None]:
    """Give the path of an uploaded picture, as long as it is read."""
    if not key:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="multilink-picture-") as stream:
        stream.write(shared.store.upload(key))
        stream.flush()
        yield stream.name


def _texts(
    archive: Archive, query: Query, result: SearchResult, asked: SearchParameters
) -> tuple[list[ShownText], Coloured]:
    """Return the texts with what counts in them, and what that is."""
    texts = shown_texts(query, result.sources)
    if any(source.tokens for source in result.sources):
        return texts, Coloured.ATTENTION
    if not query.given or not result.images:
        return texts, Coloured.NOTHING
    if sum(len(text.words) for text in texts) > MOST_INFLUENCE and not asked.has_influence:
        return texts, Coloured.TOO_LONG
    index = archive.index
    rows = index.records.rows_of([each.picture.image for each in result.images[:INFLUENCE_OF]])
    images = index.vectors.rows[np.sort(np.array(rows, np.int64))]
    influence = QueryReader(index.model, archive.reader).influence(query, images)
    return shown_texts(query, result.sources, influence), Coloured.INFLUENCE


def _is_hidden(result: SearchResult, asked: SearchParameters) -> bool:
    """Return whether the first pictures are known to be wrong, likely, and were not asked for all the same."""
    return result.first_ten is not None and result.first_ten < LIKELY and not asked.is_weak_shown
