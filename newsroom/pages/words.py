"""The words of a query as a page shows them: each with the part it plays and whether it is left out.

share    its part of what all words add to the similarity with the first pictures (leave-one-out)
step     0 to 3: less than an even share, at least one, 1.5 times, twice that
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from newsroom.search.queries import ORDER, Query, SourceText
from training.text.vocabulary import token_spans

STEPS = (1.0, 1.5, 2.0)  # times an even share


class ShownWord(NamedTuple):
    """A word of a text; an article has thousands.

    Attributes:
        gap: what stands between it and the word before.
        text: as it was written.
        number: of the token in its text.
        is_left_out: whether it is not read.
        share: 0 to 1 of all words of its source; None where it has none.
        step: 0 to 3 by its share; 0 where it has none.
    """

    gap: str
    text: str
    number: int
    is_left_out: bool
    share: float | None = None
    step: int = 0

    def button(self, role: str) -> Markup:
        """Return what leaves a word of a text out that plays no part of its own, with the gap before it."""
        opened = f'<button id="w-{role}-{self.number}" class="w" name="leave" value="{role}.{self.number}">'
        return Markup(f"{escape(self.gap)}{opened}{escape(self.text)}</button>")


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text of a query.

    Attributes:
        role: its role.
        words: all of them; `rest` follows the last.
        is_read: whether the model reads it.
    """

    role: str
    words: tuple[ShownWord, ...]
    rest: str
    is_read: bool


def shown_texts(
    query: Query, sources: Sequence[SourceText], influence: Mapping[str, Sequence[float]]
) -> list[ShownText]:
    """Return the texts of a query in the order of a document.

    Args:
        query: that was searched with.
        sources: as the model read it.
        influence: by role, what each word that is not left out adds; {}: it is not shown.
    """
    roles = [role for role in map(str, ORDER) if query.texts.get(role, "").strip()]
    spans = {role: _spans(query, role) for role in roles}
    kept = {role: [number for number, is_out in enumerate(spans[role].is_out) if not is_out] for role in roles}
    shares = _added(roles, kept, influence)
    own = {source.role for source in sources} & set(roles)
    return [
        ShownText(
            role=role,
            words=tuple(spans[role].words(dict(zip(kept[role], shares.get(role, ()), strict=False)))),
            rest=spans[role].rest,
            is_read=role in own if own else True,
        )
        for role in roles
    ]


@dataclass(frozen=True, slots=True)
class _Spans:
    text: str
    places: list[tuple[int, int]]
    is_out: list[bool]

    @property
    def rest(self) -> str:
        return self.text[self.places[-1][1] if self.places else 0 :]

    def words(self, shares: Mapping[int, float]) -> list[ShownWord]:
        even, end, found = 1 / max(1, len(shares)), 0, []
        for number, (start, stop) in enumerate(self.places):
            share = shares.get(number)
            step = 0 if share is None else sum(share >= times * even for times in STEPS)
            found.append(
                ShownWord(self.text[end:start], self.text[start:stop], number, self.is_out[number], share, step)
            )
            end = stop
        return found


def _spans(query: Query, role: str) -> _Spans:
    text = " ".join(query.texts[role].split())
    text = text if len(text.lower()) == len(text) else text.lower()
    places = token_spans(text)
    return _Spans(text, places, [(role, number) in query.left_out for number in range(len(places))])


def _added(
    roles: Sequence[str], kept: Mapping[str, Sequence[int]], influence: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Return each word's part of what the words of its text add; one that takes something away has none."""
    found = {}
    for role in roles:
        added = [max(0.0, value) for value in influence.get(role, ())]
        total = sum(added)
        if total > 0 and len(added) == len(kept[role]):
            found[role] = [value / total for value in added]
    return found
