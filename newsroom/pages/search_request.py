"""What an address of the newsroom asks for.

    index=..  language=..  n=24  rank=fused  leave=headline.3  entity=Graz  where=date>=2019  like=HASH  unlike=HASH
    date=2019  credit=..  licence=..  orientation=..  picture=KEY  influence=1  view=HASH

Parameters that repeat hold together. The texts are those of a kept article (`store.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.datastructures import QueryParams

from newsroom.archive.records import FACETS
from newsroom.search.queries import ORDER, Word
from newsroom.search.search import RankBy
from schemas.errors import UsageError

COUNTS = (12, 24, 48, 96)
MOST_REPEATED = 512  # values of one parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchParameters:
    """The parameters of an address.

    Attributes:
        index: key of the index; "": the first.
        language: of the texts; "": it is found out.
        count: pictures that are shown.
        rank_by: what puts them in order; None: what the index found best.
        left_out: words that are not read.
        entities: names that the archive must have with a picture.
        where: conditions on its metadata.
        facets: values that its facets must have.
        like: pictures whose likes are wanted.
        unlike: those whose likes are not.
        picture: key of a picture that was uploaded; "": none.
        view: content hash of the picture that is shown alone; "": the ranking is shown.
        has_influence: whether the influence of words is wanted.
    """

    index: str = ""
    language: str = ""
    count: int = COUNTS[0]
    rank_by: RankBy | None = None
    left_out: frozenset[Word] = frozenset()
    entities: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    facets: tuple[tuple[str, str], ...] = ()
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    picture: str = ""
    view: str = ""
    has_influence: bool = False

    @classmethod
    def of(cls, given: QueryParams) -> SearchParameters:
        """Return what an address asks for.

        Raises:
            UsageError: a parameter has a value that it cannot have.
        """
        several = {name: tuple(filter(None, given.getlist(name))) for name in ("entity", "where", "like", "unlike")}
        words = given.getlist("leave")
        if max(map(len, (*several.values(), words))) > MOST_REPEATED:
            raise UsageError(f"expected each parameter at most {MOST_REPEATED} times")
        count, rank_by = given.get("n", str(COUNTS[0])), given.get("rank") or None
        if not count.isdecimal() or not 1 <= int(count) <= max(COUNTS):
            raise UsageError(f"n={count!r}: expected 1 to {max(COUNTS)}")
        if rank_by is not None and rank_by not in list(RankBy):
            raise UsageError(f"rank={rank_by!r}: expected one of {', '.join(RankBy)}")
        return cls(
            index=given.get("index", ""),
            language=given.get("language", ""),
            count=int(count),
            rank_by=None if rank_by is None else RankBy(rank_by),
            left_out=frozenset(map(_word, words)),
            entities=several["entity"],
            where=several["where"],
            facets=tuple((name, value) for name in FACETS if (value := given.get(name))),
            like=several["like"],
            unlike=several["unlike"],
            picture=given.get("picture", ""),
            view=given.get("view", ""),
            has_influence=given.get("influence") == "1",
        )

    @property
    def is_query(self) -> bool:
        """Whether it says without any text what is looked for."""
        return bool(self.like or self.picture)

    def facet_conditions(self) -> Iterator[str]:
        """Yield the conditions that facets stand for.

        Raises:
            UsageError: a year is none.
        """
        for name, value in self.facets:
            if name == "date":
                if not value.isdecimal():
                    raise UsageError(f"date={value!r}: expected a year")
                yield f"date>={value}"
                yield f"date<{int(value) + 1}"
            else:
                yield f"{name}={value}"


def _word(text: str) -> Word:
    role, _, number = text.partition(".")
    if role not in ORDER or not number.isdecimal():
        raise UsageError(f"leave={text!r}: expected a text and the number of one of its words, such as headline.3")
    return role, int(number)
