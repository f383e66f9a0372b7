"""What an address of the newsroom asks for.

    index=..  language=..  n=24  rank=fused  leave=headline.3  entity=Graz  where=credit=dpa  like=HASH  unlike=HASH
    picture=KEY  influence=1  view=HASH

Parameters that repeat hold together; empty ones count as absent. The texts are those of a kept article (`store.py`).
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from newsroom.search.queries import ORDER, Word
from newsroom.search.search import RankBy

COUNTS = (12, 24, 48, 96)
MOST_REPEATED = 512  # values of one parameter


def _without_blanks(values: Sequence[str]) -> list[str]:
    return [*filter(None, values)]


_Several = Annotated[list[str], Field(max_length=MOST_REPEATED), BeforeValidator(_without_blanks)]
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


Asked = Annotated[SearchParameters, Query()]
