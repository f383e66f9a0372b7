"""What near-duplicate search works on: an image at a place of a document, and the images that look exactly alike.

Plain data passed between the search (`hamming`), the clusters and the policies. However often a picture occurs, what is
known of its look is one small row.
"""

from __future__ import annotations

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
    """The first image of another look within the radius: of two, the nearer, then the smaller hash comes first."""

    distance: int
    image: str


@dataclass(frozen=True, slots=True)
class Look:
    """All images that look exactly alike, summed up.

    Attributes:
        times: occurrences.
        first: smallest content hash among the images: it stands for the look.
        second: the next, where there are two.
        fingerprint: what they share; None where there are no pixels.
    """

    times: int
    first: str
    second: str | None
    fingerprint: str | None

    @property
    def key(self) -> str:
        """Return what is `look` of its occurrences."""
        return self.first if self.fingerprint is None else self.fingerprint


@dataclass(frozen=True, slots=True)
class Verdict:
    """A look that has a duplicate: its cluster, and its nearest other look where there is one."""

    look: Look
    cluster: str
    nearest: Neighbour | None


def look_of(occurrence: Occurrence) -> Look:
    return Look(1, occurrence.image, None, occurrence.fingerprint)


def merge_looks(looks: Iterable[Look]) -> Look:
    """Return what is known of one look from parts of it, at least one."""
    parts = list(looks)
    images = sorted({image for part in parts for image in (part.first, part.second) if image is not None})
    second = images[1] if len(images) > 1 else None
    return Look(sum(part.times for part in parts), images[0], second, parts[0].fingerprint)
