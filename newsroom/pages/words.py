"""The words of a query as a page shows them, with the part each plays; and the names in a text.

share    of a word: its part of what all words add to the similarity with the first pictures (leave-one-out)
step     0 to 3: less than an even share, at least one, 1.5 times, twice that

Names are what the archive itself knows (places, credits, keywords of its pictures), where the text has them word for
word, and runs of words with capitals that the archive's descriptions contain. A slip is forgiven in a name that a
person typed, and nowhere else: every word with a capital is near some name of a large archive.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from html import escape
from typing import Literal, NamedTuple

from markupsafe import Markup

from newsroom.archive.filters import parse_filters
from newsroom.archive.records import Records
from newsroom.archive.words import plain
from newsroom.search.queries import ORDER, Query, SourceText, tokenised
from training.text.vocabulary import token_spans

Kind = Literal["LOC", "ORG", "MISC"]
KINDS: tuple[Kind, ...] = ("LOC", "ORG", "MISC")
MOST = 24  # chips
KEPT_COUNTS = 100_000
MOST_TYPED = 3  # names that are proposed for one that is not known
LEAST_ALIKE, MOST_SLIPS = 0.8, 2  # of two names: twice the letters that they share, of all; letters more or fewer
_FIELDS: Mapping[str, Kind] = {"place": "LOC", "credit": "ORG", "keywords": "MISC"}
_WORD = re.compile(r"[^\W\d_](?:\w|['’\-](?=\w))*")
_LONGEST = 4  # words of a name that is looked for
STEPS = (1.0, 1.5, 2.0)  # times an even share


@dataclass(frozen=True, slots=True)
class Entity:
    """A name.

    Attributes:
        name: as the archive has it, else as it was written.
        kind: what it names.
        images: pictures of which the archive says it.
        written: as the text has it.
    """

    name: str
    kind: Kind
    images: int
    written: str


class Gazetteer:
    """The names that an archive knows."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.images = lru_cache(KEPT_COUNTS)(self._images)
        self._names: dict[str, tuple[str, Kind]] = {}
        for field, kind in _FIELDS.items():
            for value in records.values(field):
                for name in map(str.strip, value.split(",")) if field == "place" else [value]:
                    self._names.setdefault(plain(name), (name, kind))
        self._names.pop("", None)

    def _images(self, name: str) -> int:
        """Return of how many pictures the archive says a name."""
        return self._records.number(parse_filters(entities=[name])) if _WORD.search(name) else 0

    def known(self, written: str) -> tuple[str, Kind] | None:
        """Return a name as the archive has it, and its kind: the same but for accents and capitals."""
        return self._names.get(plain(written))

    def proposed(self, written: str) -> list[Entity]:
        """Return the names nearest to one that was typed, with the same first letter, the nearest first."""
        key = plain(written)
        alike = [name for name in self._names if name[:1] == key[:1] and abs(len(name) - len(key)) <= MOST_SLIPS]
        near = (self._names[name] for name in get_close_matches(key, alike, MOST_TYPED, LEAST_ALIKE))
        return [Entity(name, kind, self.images(name), written) for name, kind in near]


def find_entities(text: str, gazetteer: Gazetteer) -> list[Entity]:
    """Return the names in a text that the archive has, by kind and then by number of pictures."""
    found: dict[str, Entity] = {}
    for written in _names(text, gazetteer):
        name, kind = gazetteer.known(written) or (written, "MISC")
        if plain(name) not in found and (images := gazetteer.images(name)):
            found[plain(name)] = Entity(name, kind, images, written)
    kept = sorted(found.values(), key=lambda each: -each.images)[:MOST]
    return sorted(kept, key=lambda each: KINDS.index(each.kind))


def _names(text: str, gazetteer: Gazetteer) -> Iterator[str]:
    """Yield the names in runs of words with capitals: those that the archive knows, the longest first, and the runs."""
    for run in _runs(text):
        place = 0
        while place < len(run):
            longest = range(min(_LONGEST, len(run) - place), 0, -1)
            named = (" ".join(run[place : place + count]) for count in longest)
            name = next((each for each in named if gazetteer.known(each)), None)
            if name is not None:
                yield name
            place += len(name.split()) if name is not None else 1
        if len(run) > 1:
            yield " ".join(run)


def _runs(text: str) -> Iterator[Sequence[str]]:
    """Yield the runs of words that begin with a capital, with spaces alone between them."""
    run: list[re.Match[str]] = []
    for found in _WORD.finditer(text):
        if run and not (found[0][0].isupper() and text[run[-1].end() : found.start()] == " "):
            yield [each[0] for each in run]
            run = []
        run += [found] * found[0][0].isupper()
    yield [each[0] for each in run]


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
    read = {role for role, _ in sources} & {*roles}
    return [_shown(query, role, influence.get(role, ()), is_read=role in read or not read) for role in roles]


def _shown(query: Query, role: str, influence: Sequence[float], *, is_read: bool) -> ShownText:
    """Return a text with each word's part of what its words add; one that takes something away has none."""
    text = tokenised(query.texts[role])
    places, added = token_spans(text), [max(0.0, value) for value in influence]
    kept = [number for number in range(len(places)) if (role, number) not in query.left_out]
    total = sum(added) if len(added) == len(kept) else 0.0
    shares = {number: value / total for number, value in zip(kept, added, strict=False) if total}
    end, words = 0, []
    for number, (start, stop) in enumerate(places):
        share = shares.get(number)
        step = 0 if share is None else sum(share * len(shares) >= times for times in STEPS)
        is_out = (role, number) in query.left_out
        words.append(ShownWord(text[end:start], text[start:stop], number, is_out, share, step))
        end = stop
    return ShownText(role, tuple(words), text[end:], is_read)
