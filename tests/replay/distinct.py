"""Keeps the recording's pictures apart: no two that are meant to differ look alike to a perceptual hash.

The pipeline drops documents with near-duplicate images (64-bit pHash, distance at most 3), so a picture made for
a good post must be far from every other one. The margin here is wider than the pipeline's, since a picture
may be resized and encoded again before it is hashed.
"""

import imagehash
import numpy as np
from PIL import Image

MIN_DISTANCE_BITS = 8


def fingerprint(image: Image.Image) -> np.uint64:
    """imagehash's 64-bit pHash, packed into one number."""
    bits = np.packbits(np.asarray(imagehash.phash(image).hash, dtype=np.uint8).ravel())
    return np.uint64(int.from_bytes(bits.tobytes(), "big"))


def distance_bits(left: np.uint64, right: np.uint64) -> int:
    """How many bits differ."""
    return int(np.bitwise_count(np.bitwise_xor(left, right)))


class DistinctPictures:
    """The fingerprints claimed so far."""

    def __init__(self, *, capacity: int = 10_000) -> None:
        self._claimed = np.zeros(capacity, dtype=np.uint64)
        self._count = 0

    def claim(self, image: Image.Image) -> bool:
        """Take the picture's fingerprint; False, taking nothing, when another is too near."""
        mark = fingerprint(image)
        taken = self._claimed[: self._count]
        if self._count and int(np.bitwise_count(taken ^ mark).min()) < MIN_DISTANCE_BITS:
            return False
        self._claimed[self._count] = mark
        self._count += 1
        return True
