"""Draws that follow from ids and a seed alone, and the captions that are drawn: distractors (SPEC 2).

A draw is a hash of the seed and a key, so that it does not depend on the order of files, on what was drawn before, or
on the version of a random generator.
"""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)


def hashed(seed: int, *parts: object) -> int:
    """Return a 64-bit hash of a seed and of the parts' text."""
    text = ":".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def share_of(key: str, *, seed: int) -> float:
    """Return a number in [0, 1) that the seed and the key decide: below a share, the key is in it."""
    return hashed(seed, key) / 2**64


def shuffled_order(count: int, *, seed: int, key: str) -> list[int]:
    """Return the numbers below `count` in an order that the seed and the key decide."""
    return sorted(range(count), key=lambda number: (hashed(seed, "order", key, number), number))


def draw(count: int, *, size: int, is_allowed: Callable[[int], bool], seed: int, key: str) -> list[int]:
    """Return `count` different allowed numbers below `size`, uniformly drawn; fewer where there are no more.

    `is_allowed` is asked of a number just before it is taken, so it may depend on those taken before.
    """
    taken: dict[int, None] = {}
    guesses = (hashed(seed, "draw", key, attempt) % size for attempt in range(8 * count + 64 if size else 0))
    for number in chain(guesses, _all(size, seed, key)):
        if len(taken) == count:
            break
        if number not in taken and is_allowed(number):
            taken[number] = None
    return list(taken)


def _all(size: int, seed: int, key: str) -> Iterator[int]:
    """Yield every number in a shuffled order, for when few are allowed."""
    yield from shuffled_order(size, seed=seed, key=f"{key}/all")


class CaptionPool(Generic[H]):
    """All captions of a split, each with the image it was written about.

    Args:
        captions: of each image; images and captions in an order that follows from ids.
    """

    def __init__(self, captions: Mapping[H, Sequence[str]]) -> None:
        self._by_image = captions
        self._captions = [(image, text) for image, texts in captions.items() for text in texts]

    def distractors(self, count: int, *, images: Collection[H], seed: int, key: str) -> list[str]:
        """Return captions drawn uniformly from those written about none of `images`; fewer where there are no more.

        Their texts differ from each other and, since one text may have been written twice, from every caption of
        `images` (letter case aside).
        """
        used = {text.casefold() for image in images for text in self._by_image.get(image, ())}

        def is_allowed(number: int) -> bool:
            image, text = self._captions[number]
            if image in images or text.casefold() in used:
                return False
            used.add(text.casefold())
            return True

        drawn = draw(count, size=len(self._captions), is_allowed=is_allowed, seed=seed, key=key)
        return [self._captions[number][1] for number in drawn]
