"""Draws that follow from ids and a seed alone, and the captions that are drawn: distractors (SPEC 2).

A draw is a hash of the seed and a key, so that it does not depend on the order of files, on what was drawn before, or
on the version of a random generator.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)


def place(seed: int, *parts: object) -> int:
    """Return a 64-bit hash of a seed and of the parts' text."""
    text = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def shuffled_order(count: int, *, seed: int, key: str) -> list[int]:
    """Return the numbers below `count` in an order that the seed and the key decide."""
    return sorted(range(count), key=lambda number: (place(seed, "order", key, number), number))


def draw(count: int, *, size: int, is_allowed: Callable[[int], bool], seed: int, key: str) -> list[int]:
    """Return `count` different allowed numbers below `size`, uniformly drawn; fewer where there are no more.

    `is_allowed` is asked of a number just before it is taken, so it may depend on those taken before.
    """
    taken: dict[int, None] = {}
    for attempt in range(8 * count + 64 if size else 0):
        if len(taken) == count:
            return list(taken)
        number = place(seed, "draw", key, attempt) % size
        if number not in taken and is_allowed(number):
            taken[number] = None
    # Few are allowed: go through all of them, in a shuffled order.
    for number in shuffled_order(size, seed=seed, key=f"{key}/all"):
        if len(taken) == count:
            break
        if number not in taken and is_allowed(number):
            taken[number] = None
    return list(taken)


class PackedTexts:
    """A growing list of texts in one block of UTF-8: some eight bytes a text beside its own."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        return self._block[self._ends[number] : self._ends[number + 1]].decode()

    def append(self, text: str) -> None:
        self._block += text.encode()
        self._ends.append(len(self._block))


class CaptionPool(Generic[H]):
    """All captions of a split, each with the image it was written about.

    Args:
        captions: each image once, with its captions; images and captions in an order that follows from ids.
    """

    def __init__(self, captions: Iterable[tuple[H, Sequence[str]]]) -> None:
        self._texts = PackedTexts()
        self._spans: dict[H, range] = {}
        for image, texts in captions:
            start = len(self._texts)
            for text in texts:
                self._texts.append(text)
            self._spans[image] = range(start, len(self._texts))

    def __len__(self) -> int:
        return len(self._texts)

    def captions_of(self, image: H) -> list[str]:
        """Return the captions written about an image, in the pool's order."""
        return [self._texts[number] for number in self._spans.get(image, ())]

    def distractors(self, count: int, *, images: Collection[H], seed: int, key: str) -> list[str]:
        """Return captions drawn uniformly from those written about none of `images`; fewer where there are no more.

        Their texts differ from each other and, since one text may have been written twice, from every caption of
        `images` (letter case aside).
        """
        own = {number for image in images for number in self._spans.get(image, ())}
        used = {self._texts[number].casefold() for number in own}

        def is_allowed(number: int) -> bool:
            text = self._texts[number].casefold()
            if number in own or text in used:
                return False
            used.add(text)
            return True

        drawn = draw(count, size=len(self._texts), is_allowed=is_allowed, seed=seed, key=key)
        return [self._texts[number] for number in drawn]
