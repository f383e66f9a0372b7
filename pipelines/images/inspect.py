"""From the bytes of a file to everything known of the picture: hash, size, fingerprint, flatness, and the kept copy.

The images stage calls `inspect_image` once per fetched file; fetching is in `pipelines.web`, keeping in `store.py`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import cast

from PIL import Image as Pixels

from pipelines.images.copies import encode_jpeg
from pipelines.images.fingerprints import fingerprint_image
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import decode_image
from schemas.images import Image

FLAT_LEVELS = 2  # a channel may vary by this many of 256 levels: what JPEG leaves of one colour
PROBES = 8  # pixels looked at first, each way


@dataclass(frozen=True, slots=True)
class Inspected:
    """A usable picture: what is known of it, and its copy (JPEG, shorter side 256 px)."""

    image: Image
    jpeg: bytes


def inspect_image(
    data: bytes,
    *,
    config: ImagesConfig,
    fingerprint: FingerprintName,
) -> Inspected:
    """Return what is known of a picture; the same bytes always give the same.

    Args:
        data: the whole file as it was fetched; its SHA-256 is the picture's identity.
        config: what is acceptable.
        fingerprint: which perceptual hash, computed on the decoded original.

    Raises:
        schemas.codecs.ImageRejected: the bytes are no acceptable picture.
    """
    pixels = decode_image(
        data, max_pixels=config.max_pixels, min_side_px=config.min_side_px, allow_animated=config.allow_animated
    )
    image = Image(
        hash=hashlib.sha256(data).hexdigest(),
        format=pixels.format,
        width=pixels.width,
        height=pixels.height,
        original_bytes=len(data),
        fingerprint=fingerprint_image(pixels, fingerprint),
        is_flat=is_flat(pixels),
    )
    return Inspected(image, encode_jpeg(pixels, quality=config.jpeg_quality))


def is_flat(pixels: Pixels.Image) -> bool:
    """Whether an RGB picture is one colour all over: no channel's extremes are more than FLAT_LEVELS apart."""
    some = pixels.resize((PROBES, PROBES), Pixels.Resampling.NEAREST)  # most pictures need no look at every pixel
    return _is_even(some) and _is_even(pixels)


def _is_even(pixels: Pixels.Image) -> bool:
    extremes = cast("tuple[tuple[int, int], ...]", pixels.getextrema())
    return all(highest - lowest <= FLAT_LEVELS for lowest, highest in extremes)
