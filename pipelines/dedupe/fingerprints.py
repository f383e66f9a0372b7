"""Perceptual fingerprints by name: pictures that look alike have codes that differ in few bits.

To add one: a member of `pipelines.config.FingerprintName` and a function here. A fingerprint's length is a multiple of
64 bits, and it is computed on the decoded original, upright and in full size (as Hessel 2019's tool did), not on the
copy a data set keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PIL import Image

from pipelines.config import FingerprintName


def fingerprint_image(image: Image.Image, name: FingerprintName) -> str:
    """Return the fingerprint of an RGB picture in lower-case hexadecimal."""
    return _FINGERPRINTS[name](image)


def phash(image: Image.Image) -> str:
    """Return the 64-bit DCT hash of `imagehash.phash`: 32 x 32 grey, DCT, the 8 x 8 lowest against their median."""
    import imagehash

    return str(imagehash.phash(image))


_FINGERPRINTS: Mapping[FingerprintName, Callable[[Image.Image], str]] = {FingerprintName.PHASH: phash}
