"""What the processes that search do: each function is a job of `searches.Searches`, with open indexes first.

find              the pictures for an article, with its names and the facets of what filters leave
compare           the pictures of two models for an article, in turns
propose_places    which picture goes beside which paragraph
look_up           what an index knows of pictures
newest            the pictures with the latest dates
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from newsroom.archive.filters import Filters, parse_filters
from newsroom.archive.records import Picture
from newsroom.decisions.rankings import COMPARED, interleaved
from newsroom.decisions.records import Ranking
from newsroom.pages.search_request import SearchParameters
from newsroom.pages.searches import Opened
from newsroom.pages.store import Article
from newsroom.pages.words import Entity
from newsroom.search.placement import place
from newsroom.search.queries import Query
from newsroom.search.search import MAX_TOP, RankBy, RankedImage, SearchResult, search
from pipelines.sources.text import split_sentences
from schemas.documents import UNDETERMINED
from schemas.errors import UsageError
from training.text.vocabulary import token_spans

LIKELY = 0.5
NEWEST = 24  # pictures of the first page
INFLUENCE_OF = 10  # first pictures whose similarity words add to
MOST_WORDS = 500  # of a text whose influence is computed: it is read once for each


@dataclass(frozen=True, slots=True)
class Group:
    """A picture that was found, and those that are nearly the same, which follow it in the ranking."""

    first: RankedImage
    folded: tuple[RankedImage, ...] = ()


@dataclass(frozen=True, slots=True)
class NameSuggestion:
    """A name that was typed and that the archive does not have, with those that come near."""

    typed: str
    proposed: tuple[Entity, ...]


class Highlighting(StrEnum):
    """What the colours of words show: influence, or nothing, where influence can be computed or cannot."""

    INFLUENCE = "influence"
    POSSIBLE = "possible"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """What was found.

    Attributes:
        query: that was searched with.
        entities: names in the texts.
        languages: that the model reads; (): any.
        result: the ranking, its pictures left out: they are in `groups`.
        groups: pictures, near-duplicates folded; at most as many as are shown.
        has_more: whether there are further ones.
        highlighting: what the colours of words show.
        influence: by text, what each word that is read adds; {}: it is not shown.
        suggestions: names that were typed and replaced.
        wrong: conditions that cannot be read and are not applied, each with what is wrong.
        facets: values of each facet among the pictures that filters leave, with their numbers.
        is_unlikely: whether the archive likely has no right picture.
        has_no_word: whether pictures are ranked by words, and none has one of them.
    """

    query: Query
    entities: tuple[Entity, ...]
    languages: tuple[str, ...]
    result: SearchResult
    groups: tuple[Group, ...]
    has_more: bool = False
    highlighting: Highlighting = Highlighting.NOTHING
    influence: dict[str, list[float]] = field(default_factory=dict)
    suggestions: tuple[NameSuggestion, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()
    facets: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    is_unlikely: bool = False
    has_no_word: bool = False


def language_of(opened: Opened, article: Article, stated: str = "") -> str:
    """Return the language of the texts: stated, or found out among those that the model knows."""
    known = stated or article.language
    return known if known != UNDETERMINED and known else opened.language(" ".join(article.texts.values()))


def find(opened: Opened, article: Article, parameters: SearchParameters, upload: bytes) -> SearchOutcome:
    """Return what an address and an article ask for.

    Args:
        opened: the index.
        article: may have no text, where parameters are a query.
        parameters: of the address.
        upload: the picture that they name; b"": none.

    Raises:
        UsageError: the model cannot read it.
        NotFoundError: a picture that is named is not there.
    """
    names, suggestions = _names(opened, parameters.entities)
    filters, wrong = _filters([*parameters.facet_conditions()], parameters.where, names)
    language = language_of(opened, article, parameters.language)
    entities = opened.entities(" ".join(article.texts.values()))
    index = opened.archive.index
    top = min(MAX_TOP, 3 * parameters.count + 20)  # enough where some are folded
    with _file(upload) as picture:
        query = Query(
            texts=article.texts, language=language, left_out=parameters.left_out, picture=picture,
            like=parameters.like, unlike=parameters.unlike,
        )  # fmt: skip
        result = search(
            index, query, filters=filters, top=top, rank_by=parameters.rank_by, queries=opened.queries,
            known=opened.read(query),
        )  # fmt: skip
    every = fold(result.images)
    groups = every[: parameters.count]
    highlighting, influence = _highlighted(opened, query, result, parameters)
    return SearchOutcome(
        query=query,
        entities=tuple(entities),
        languages=tuple(opened.languages),
        result=replace(result, images=()),
        groups=groups,
        has_more=len(every) > len(groups),
        highlighting=highlighting,
        influence=influence,
        suggestions=suggestions,
        wrong=tuple(wrong),
        facets=opened.facets(filters),
        is_unlikely=result.first_ten is not None and result.first_ten < LIKELY,
        has_no_word=result.rank_by is RankBy.LEXICAL and result.searched > 0 and not groups,
    )


def fold(images: Sequence[RankedImage]) -> tuple[Group, ...]:
    """Return the pictures of a ranking, each with those after it that are nearly the same."""
    found: dict[str, Group] = {}
    for each in images:
        key = each.picture.cluster or each.picture.image
        before = found.get(key)
        found[key] = replace(before, folded=(*before.folded, each)) if before else Group(each)
    return tuple(found.values())


def compare(first: Opened, second: Opened, article: Article, address: str) -> tuple[Ranking, list[Picture]]:
    """Return the one list of two models' pictures for an article, and what is known of each.

    Raises:
        UsageError: they are not two models over one data set version, or a model cannot read the texts.
    """
    queries = [Query(texts=article.texts, language=language_of(each, article)) for each in (first, second)]
    indexes = [each.archive.index for each in (first, second)]
    found = [
        search(index, query, top=COMPARED, queries=opened.queries, known=opened.read(query))
        for index, query, opened in zip(indexes, queries, (first, second), strict=True)
    ]
    ranking = interleaved(queries[0], indexes, found, address=address)
    known = {each.picture.image: each.picture for result in found for each in result.images}
    return ranking, [known[each.image] for each in ranking.pictures]


def look_up(opened: Opened, images: Sequence[str]) -> dict[str, Picture]:
    """Return what an index knows of pictures, by content hash; those that it has not are left out."""
    records = opened.archive.index.records
    rows = [row for row in records.rows_of(list(images)) if row is not None]
    return {picture.image: picture for picture in records.pictures(rows)}


def newest(opened: Opened) -> list[Picture]:
    """Return the NEWEST pictures of an index with the latest dates, the latest first."""
    records = opened.archive.index.records
    return records.pictures(records.newest(NEWEST).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Where a model would put pictures.

    Attributes:
        language: of the article.
        pictures: what the index knows of them, by content hash.
        places: by content hash, or key of an upload, the paragraph from 0 and the sentence that each goes with.
    """

    language: str
    pictures: dict[str, Picture]
    places: dict[str, tuple[int, str]]


def propose_places(
    opened: Opened,
    article: Article,
    paragraphs: Sequence[str],
    images: Sequence[str],
    free: Mapping[str, bytes | None],
) -> Proposal:
    """Return what an index knows of pictures, and where those go that have no place yet.

    Args:
        opened: the index.
        article: with its language.
        paragraphs: of its body.
        images: content hashes; those that the index has not are left out.
        free: those of them without a place; and uploads without one, by their keys, with their bytes.

    Raises:
        UsageError: there are too many, or the model cannot read the sentences.
    """
    language, known = language_of(opened, article), look_up(opened, images)
    split = split_sentences(paragraphs, language=language)
    with ExitStack() as files:
        own = {key: str(files.enter_context(_file(data))) for key, data in free.items() if data}
        given = [image for image in free if image in known]
        index, reader = opened.archive.index, opened.archive.reader
        found = place(
            index, split.sentences, given, language=language, reader=reader, own=own, vectors_of=opened.sentences
        )
    numbers = {each.image: each.sentence for each in found if each.sentence is not None}
    places = {image: (split.paragraphs[number], split.sentences[number]) for image, number in numbers.items()}
    return Proposal(language=language, pictures=known, places=places)


def _names(opened: Opened, typed: Sequence[str]) -> tuple[list[str], tuple[NameSuggestion, ...]]:
    """Return the names that pictures are filtered by: those that were typed, or where there are none the nearest."""
    names, suggestions = [], []
    for name in typed:
        is_known = opened.gazetteer.images(name) > 0
        proposed = () if is_known else tuple(opened.gazetteer.proposed(name))
        if not is_known:
            suggestions.append(NameSuggestion(name, proposed))
        names.append(proposed[0].name if proposed else name)
    return names, tuple(suggestions)


def _filters(
    facets: Sequence[str], where: Sequence[str], names: Sequence[str]
) -> tuple[Filters, list[tuple[str, str]]]:
    """Return the filters of what can be read, and the conditions and names that cannot, with what is wrong."""
    kept: tuple[list[str], list[str]] = [*facets], []
    wrong = []
    for into, each in [(kept[0], condition) for condition in where] + [(kept[1], name) for name in names]:
        try:
            parse_filters([each] if into is kept[0] else [], [each] if into is kept[1] else [])
            into.append(each)
        except UsageError as problem:
            wrong.append((each, str(problem).partition(" ")[2]))
    return parse_filters(*kept), wrong


@contextmanager
def _file(upload: bytes) -> Iterator[str | None]:
    """Give the path of an uploaded picture, as long as it is read."""
    if not upload:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="picture-") as stream:
        stream.write(upload)
        stream.flush()
        yield stream.name


def _highlighted(
    opened: Opened, query: Query, result: SearchResult, parameters: SearchParameters
) -> tuple[Highlighting, dict[str, list[float]]]:
    """Return what the colours of words show, and the influence of words where that is it."""
    words = sum(len(token_spans(text)) for text in query.given.values())
    if not 0 < words <= MOST_WORDS or not result.images:
        return Highlighting.NOTHING, {}
    if not parameters.has_influence:
        return Highlighting.POSSIBLE, {}
    index = opened.archive.index
    rows = index.records.rows_of([each.picture.image for each in result.images[:INFLUENCE_OF]])
    images = index.vectors.rows[np.sort(np.array(rows, np.int64))]
    return Highlighting.INFLUENCE, opened.queries.influence(query, images)
