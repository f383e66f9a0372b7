"""What an address of the newsroom asks for, and what the processes that search do: jobs of `searches.Searches`.

    index=..  language=..  n=24  rank=fused  leave=headline.3  entity=Graz  where=credit=dpa  like=HASH  unlike=HASH
    picture=KEY  influence=1  view=HASH

Parameters that repeat hold together; empty ones count as absent. The texts are those of a kept article.

    find       the pictures for an article, with its names and the facets of what filters leave
    look_up    what an index knows of pictures
    newest     the pictures with the latest dates
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from fastapi import Query as Parameters
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from newsroom.archive.filters import Condition, Filters, parse_filters
from newsroom.archive.records import Picture
from newsroom.decisions.store import Article
from newsroom.pages.searches import Opened
from newsroom.pages.words import Entity
from newsroom.search.queries import ORDER, Query, Word
from newsroom.search.search import MAX_TOP, RankBy, RankedImage, SearchResult, search
from schemas.documents import UNDETERMINED
from schemas.messages import UsageError
from training.text.vocabulary import token_spans

Group = tuple[RankedImage, ...]
COUNTS = (12, 24, 48, 96)
MOST_REPEATED = 512  # values of one parameter
NEWEST = 24  # pictures of the first page
INFLUENCE_OF = 10  # first pictures whose similarity words add to
MOST_WORDS = 500  # of a text whose influence is computed: it is read once for each


_Several = Annotated[
    list[str], Field(max_length=MOST_REPEATED), BeforeValidator(lambda values: [*filter(None, values)])
]
_LeftOut = Annotated[str, StringConstraints(pattern=rf"^({'|'.join(ORDER)})\.\d{{1,6}}$")]


class SearchParameters(BaseModel):
    """The parameters of an address.

    Attributes:
        index: key of the index; "": the first.
        language: of the texts; "": it is found out.
        n: pictures that are shown.
        rank: what puts them in order; None: what the index found best.
        leave: words that are not read, as ROLE.NUMBER.
        entity: names that the archive must have with a picture.
        where: conditions on its metadata.
        like: pictures whose likes are wanted.
        unlike: those whose likes are not.
        picture: key of a picture that was uploaded; "": none.
        view: content hash of the picture that is shown alone; "": the ranking is shown.
        influence: whether the influence of words is wanted.
    """

    index: str = ""
    language: str = ""
    n: Annotated[int, Field(ge=1, le=max(COUNTS))] = COUNTS[0]
    rank: Annotated[RankBy | None, BeforeValidator(lambda value: value or None)] = None
    leave: Annotated[list[_LeftOut], Field(max_length=MOST_REPEATED)] = []
    entity: _Several = []
    where: _Several = []
    like: _Several = []
    unlike: _Several = []
    picture: str = ""
    view: str = ""
    influence: bool = False

    @property
    def is_query(self) -> bool:
        """Whether it says without any text what is looked for."""
        return bool(self.like or self.picture)

    @property
    def left_out(self) -> frozenset[Word]:
        """The words that are not read."""
        return frozenset((role, int(number)) for role, _, number in (word.partition(".") for word in self.leave))


Asked = Annotated[SearchParameters, Parameters()]


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
    with upload_file(upload) as picture:
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
        languages=tuple(opened.queries.languages),
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


def look_up(opened: Opened, images: Sequence[str]) -> dict[str, Picture]:
    """Return what an index knows of pictures, by content hash; those that it has not are left out."""
    records = opened.index.records
    rows = [row for row in records.rows_of(list(images)) if row is not None]
    return {picture.image: picture for picture in records.pictures(rows)}


def newest(opened: Opened) -> list[Picture]:
    """Return the NEWEST pictures of an index with the latest dates, the latest first."""
    records = opened.index.records
    return records.pictures(records.newest(NEWEST).tolist())


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
def upload_file(upload: bytes) -> Iterator[str | None]:
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
    if not 0 < sum(len(token_spans(text)) for text in query.given.values()) <= MOST_WORDS or not result.images:
        return None
    if not parameters.influence:
        return {}
    index = opened.index
    rows = index.records.rows_of([each.picture.image for each in result.images[:INFLUENCE_OF]])
    return opened.queries.influence(query, index.vectors.rows[np.sort(np.array(rows, np.int64))])
