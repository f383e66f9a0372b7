"""What the processes that search do: each function is a job of `searches.Searches`, with open indexes first.

find              the pictures for an article, with its names and the facets of what filters leave
compare           the pictures of two models for an article, in turns
propose_places    which picture goes beside which paragraph
look_up           what an index knows of pictures
newest            the pictures with the latest dates
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from newsroom.archive.filters import Condition, Filters, parse_filters
from newsroom.archive.records import Picture
from newsroom.decisions.rankings import COMPARED, interleaved
from newsroom.decisions.records import Ranking
from newsroom.pages.search_request import SearchParameters
from newsroom.pages.searches import Opened
from newsroom.pages.store import Article
from newsroom.pages.words import Entity
from newsroom.search.queries import Query
from newsroom.search.search import MAX_TOP, RankedImage, SearchResult, search
from pipelines.sources.text import split_sentences
from schemas.documents import UNDETERMINED
from schemas.errors import UsageError
from training.similarity.assignment import predicted_pairs
from training.text.vocabulary import token_spans

Group = tuple[RankedImage, ...]
MAX_SENTENCES = 2_000  # of an article whose pictures are placed
NEWEST = 24  # pictures of the first page
INFLUENCE_OF = 10  # first pictures whose similarity words add to
MOST_WORDS = 500  # of a text whose influence is computed: it is read once for each


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """What was found.

    Attributes:
        query: that was searched with.
        entities: names in the texts.
        languages: that the model reads; (): any.
        result: the ranking, its pictures left out: they are in `groups`.
        groups: pictures, each with those after it that are nearly the same; at most as many as are shown.
        has_more: whether there are further ones.
        influence: by text, what each word that is read adds; {}: nobody asked; None: it cannot be computed.
        suggestions: names that were typed and that the archive does not have, with those that come near.
        wrong: conditions that cannot be read and are not applied, each with what is wrong.
        facets: values of each facet among the pictures that filters leave, with their numbers.
    """

    query: Query
    entities: tuple[Entity, ...]
    languages: tuple[str, ...]
    result: SearchResult
    groups: tuple[Group, ...]
    has_more: bool = False
    influence: dict[str, list[float]] | None = None
    suggestions: dict[str, list[Entity]] = field(default_factory=dict)
    wrong: tuple[tuple[str, str], ...] = ()
    facets: dict[str, list[tuple[str, int]]] = field(default_factory=dict)


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
    names, suggestions = _names(opened, parameters.entity)
    filters, wrong = _filters(parameters.where, names)
    language = language_of(opened, article, parameters.language)
    entities = opened.entities(" ".join(article.texts.values()))
    index = opened.index
    top = min(MAX_TOP, 3 * parameters.n + 20)  # enough where some are folded
    with _file(upload) as picture:
        query = Query(
            texts=article.texts, language=language, left_out=parameters.left_out, picture=picture,
            like=tuple(parameters.like), unlike=tuple(parameters.unlike),
        )  # fmt: skip
        result = search(
            index, query, filters=filters, top=top, rank_by=parameters.rank, queries=opened.queries,
            known=opened.read(query),
        )  # fmt: skip
    every = fold(result.images)
    groups = every[: parameters.n]
    return SearchOutcome(
        query=query,
        entities=tuple(entities),
        languages=tuple(opened.languages),
        result=replace(result, images=()),
        groups=groups,
        has_more=len(every) > len(groups),
        influence=_influence(opened, query, result, parameters),
        suggestions=suggestions,
        wrong=tuple(wrong),
        facets=opened.facets(filters),
    )


def fold(images: Sequence[RankedImage]) -> tuple[Group, ...]:
    """Return the pictures of a ranking, each with those after it that are nearly the same."""
    found = dict[str, list[RankedImage]]()
    for each in images:
        found.setdefault(each.picture.cluster or each.picture.image, []).append(each)
    return tuple(map(tuple, found.values()))


def compare(first: Opened, second: Opened, article: Article, address: str) -> tuple[Ranking, list[Picture]]:
    """Return the one list of two models' pictures for an article, and what is known of each.

    Raises:
        UsageError: they are not two models over one data set version, or a model cannot read the texts.
    """
    queries = [Query(texts=article.texts, language=language_of(each, article)) for each in (first, second)]
    indexes = [each.index for each in (first, second)]
    found = [
        search(index, query, top=COMPARED, queries=opened.queries, known=opened.read(query))
        for index, query, opened in zip(indexes, queries, (first, second), strict=True)
    ]
    ranking = interleaved(queries[0], indexes, found, address=address)
    known = {each.picture.image: each.picture for result in found for each in result.images}
    return ranking, [known[each.image] for each in ranking.pictures]


def look_up(opened: Opened, images: Sequence[str]) -> dict[str, Picture]:
    """Return what an index knows of pictures, by content hash; those that it has not are left out."""
    records = opened.index.records
    rows = [row for row in records.rows_of(list(images)) if row is not None]
    return {picture.image: picture for picture in records.pictures(rows)}


def newest(opened: Opened) -> list[Picture]:
    """Return the NEWEST pictures of an index with the latest dates, the latest first."""
    records = opened.index.records
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
    opened: Opened, article: Article, paragraphs: Sequence[str], images: Sequence[str], free: Mapping[str, bytes | None]
) -> Proposal:
    """Return what an index knows of pictures, and where those go that have no place yet (Hessel 2019, 3.2).

    Every sentence is compared with every picture by their cosine (an index has no inputs of steps at link time), and
    the maximum-weight matching is taken, as in linking: a picture has at most one sentence, and a sentence one picture.

    Args:
        opened: the index.
        article: with its language.
        paragraphs: of its body.
        images: content hashes; those that the index has not are left out.
        free: those of them without a place; and uploads without one, by their keys, with their bytes.

    Raises:
        UsageError: there are too many sentences, or the model cannot read them.
    """
    language, known = language_of(opened, article), look_up(opened, images)
    split, index, places = split_sentences(paragraphs, language=language), opened.index, {}
    if len(split.sentences) > MAX_SENTENCES:
        raise UsageError(f"expected at most {MAX_SENTENCES} sentences, found {len(split.sentences)}")
    given, uploads = [image for image in free if image in known], [key for key, data in free.items() if data]
    if split.sentences and (names := [*given, *uploads]):
        with ExitStack() as files:
            own = [opened.queries.picture(str(files.enter_context(_file(free[key] or b"")))) for key in uploads]
        pictures = np.stack([*index.vectors.rows[index.records.rows_named(given)], *own])
        pairs = predicted_pairs(opened.sentences(split.sentences, language) @ pictures.T)
        places = {names[of]: (split.paragraphs[at], split.sentences[at]) for at, of in zip(*pairs, strict=True)}
    return Proposal(language=language, pictures=known, places=places)


def _names(opened: Opened, typed: Sequence[str]) -> tuple[list[str], dict[str, list[Entity]]]:
    """Return the names that pictures are filtered by: those that were typed, or where there are none the nearest."""
    unknown = [name for name in typed if not opened.gazetteer.images(name)]
    suggestions = {name: opened.gazetteer.proposed(name) for name in unknown}
    return [near[0].name if (near := suggestions.get(name)) else name for name in typed], suggestions


def _filters(where: Sequence[str], names: Sequence[str]) -> tuple[Filters, list[tuple[str, str]]]:
    """Return the filters of what can be read, and the conditions and names that cannot, with what is wrong."""
    kept, wrong = list[Condition](), list[tuple[str, str]]()
    for each, given in [(one, {"where": [one]}) for one in where] + [(one, {"entities": [one]}) for one in names]:
        try:
            kept += parse_filters(**given)
        except UsageError as problem:
            wrong.append((each, str(problem).partition(" ")[2]))
    return tuple(kept), wrong


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


def _influence(
    opened: Opened, query: Query, result: SearchResult, parameters: SearchParameters
) -> dict[str, list[float]] | None:
    """Return by text what each word adds; nothing where nobody asked, None where it cannot be computed."""
    words = sum(len(token_spans(text)) for text in query.given.values())
    if not 0 < words <= MOST_WORDS or not result.images:
        return None
    if not parameters.influence:
        return {}
    index = opened.index
    rows = index.records.rows_of([each.picture.image for each in result.images[:INFLUENCE_OF]])
    return opened.queries.influence(query, index.vectors.rows[np.sort(np.array(rows, np.int64))])
