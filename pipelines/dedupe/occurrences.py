"""What near-duplicate search works on: an image at a place of a document, and the images that look exactly alike.

Plain data passed between the search (`hamming`), the clusters and the policies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One image of one document.

    Attributes:
        document: id of the document.
        position: index of the image in it, from 0.
        image: content hash.
        fingerprint: perceptual hash in hexadecimal; None where there are no pixels: such images are duplicates only
            of themselves.
        is_flat: one colour all over: left out of the search.
    """

    document: str
    position: int
    image: str
    fingerprint: str | None
    is_flat: bool = False

    @property
    def look(self) -> str:
        """What images that cannot be told apart have in common: their fingerprint, else their content."""
        return self.image if self.fingerprint is None else self.fingerprint


@dataclass(frozen=True, slots=True, order=True)
class Neighbour:
    """Another look within the radius."""

    distance: int
    look: str


@dataclass(frozen=True, slots=True)
class LookAlikes:
    """Every occurrence of one look, sorted, and the looks within the radius of it, nearest first."""

    look: str
    occurrences: tuple[Occurrence, ...]
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def has_duplicate(self) -> bool:
        return len(self.occurrences) > 1 or bool(self.neighbours)


def searchable(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """Return the occurrences that take part: all but those of flat images."""
    return [occurrence for occurrence in occurrences if not occurrence.is_flat]


def group_by_look(occurrences: Iterable[Occurrence]) -> dict[str, list[Occurrence]]:
    groups: dict[str, list[Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        groups[occurrence.look].append(occurrence)
    return dict(groups)
