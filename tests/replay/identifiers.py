"""Makes the identifiers of albums, images and posts, repeatably and without two that differ in case only.

(File names come from them, and some file systems ignore case.)
"""

import random
import string
from collections.abc import Iterable

ALBUM_LENGTH = 5
IMAGE_LENGTH = 7
EARLY_IMAGE = "0" + "M" * (IMAGE_LENGTH - 1)  # among the first in order, and not the first
FIRST_POST_NUMBER = 36**5 + 1_000_003
BASE36 = string.digits + string.ascii_lowercase


class Identifiers:
    """A seeded supply of identifiers, none given twice."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._given: set[str] = set()
        self._post_number = FIRST_POST_NUMBER

    def reserve(self, identifiers: Iterable[str]) -> None:
        """Never give these: they are taken already."""
        self._given.update(identifier.lower() for identifier in identifiers)

    def album(self) -> str:
        """A new album identifier."""
        return self._fresh(ALBUM_LENGTH)

    def image(self) -> str:
        """A new image identifier."""
        return self._fresh(IMAGE_LENGTH)

    def post(self) -> str:
        """A new submission identifier: base 36, ascending."""
        self._post_number += self._rng.randint(1, 50_000)
        number, digits = self._post_number, ""
        while number:
            number, digit = divmod(number, 36)
            digits = BASE36[digit] + digits
        return digits

    def _fresh(self, length: int) -> str:
        while True:
            identifier = "".join(self._rng.choices(string.ascii_letters + string.digits, k=length))
            if identifier.lower() not in self._given:
                self._given.add(identifier.lower())
                return identifier
