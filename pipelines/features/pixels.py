"""From a stored picture to the pixels that a network reads: decoding, then resizing or cropping.

The stored copy has a shorter side of 256 px, so that a centre crop is a cut and no resampling. Pixels stay bytes here:
a quarter of what travels to a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.values import Rejected
from schemas.codecs import ImageRejected, decode_image

Pixels = npt.NDArray[np.uint8]  # H x W x 3, RGB, or N of them

MAX_PIXELS = 50_000_000  # beyond any stored copy: only a file that is none has more


class Square(NamedTuple):
    """The pixels of a square, and where it lies in its picture: left, top, right, bottom as shares 0..1."""

    pixels: Pixels
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What a network expects: a square of `size_px`, each channel (x - mean) / deviation of values 0..255.

    Attributes:
        fit: how a picture of any form becomes a square. `centre`: its shorter side resized to `shorter_side_px`, then
            the middle `size_px` square. `squash`: all of it resized to the square, its proportions given up.
        mean: of red, green and blue, as is `deviation`.
    """

    fit: Literal["centre", "squash"] = "centre"
    size_px: int = 224
    shorter_side_px: int = 256
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def square(self, picture: bytes) -> Square | Rejected:
        """Return the square of a stored picture, or why it has none."""
        image = decoded(picture)
        if isinstance(image, Rejected):
            return image
        size = self.size_px
        if self.fit == "squash":
            return Square(np.array(image.resize((size, size), Image.Resampling.BILINEAR)), (0.0, 0.0, 1.0, 1.0))
        scale = self.shorter_side_px / min(image.size)
        if scale != 1:
            resized = (round(image.width * scale), round(image.height * scale))
            image = image.resize(resized, Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        cut = (left, top, left + size, top + size)
        across, down = size / image.width, size / image.height
        return Square(np.array(image.crop(cut)), ((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2))

    def batches(
        self, pictures: Sequence[bytes], size: int, pool: Executor
    ) -> Iterator[tuple[list[Square | Rejected], Pixels]]:
        """Yield what is known of `size` pictures at a time with their N x H x W x 3 pixels.

        Every batch is of one shape, so that a picture's company does not choose how a GPU computes: a picture that is
        rejected or missing is black.
        """
        decoding = pool.map(self.square, pictures)  # runs ahead of what is consumed
        while squares := list(islice(decoding, size)):
            pixels = np.zeros((size, self.size_px, self.size_px, 3), np.uint8)
            for row, square in enumerate(squares):
                if isinstance(square, Square):
                    pixels[row] = square.pixels
            yield squares, pixels


def decoded(picture: bytes) -> Image.Image | Rejected:
    """Return the RGB image of a stored picture, or why there is none."""
    try:
        return decode_image(picture, max_pixels=MAX_PIXELS, min_side_px=1, allow_animated=False)
    except ImageRejected as error:
        return Rejected(str(error))
