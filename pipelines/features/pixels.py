"""From a stored picture to the pixels a network looks at: decoding, then resizing or cropping.

The stored copy (`schemas.codecs.encode_jpeg`) has a shorter side of 256 px, so that a centre crop is a cut and no
resampling. Pixels stay bytes here: a quarter of what travels to a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.values import Rejected
from schemas.codecs import ImageRejected, decode_image

Pixels = npt.NDArray[np.uint8]  # H x W x 3, RGB
Triple = tuple[float, float, float]  # of red, green and blue

MAX_PIXELS = 50_000_000  # beyond any stored copy: only a file that is none has more


class Fit(StrEnum):
    """How a picture of any form becomes a square.

    CENTRE: its shorter side resized to `shorter_side_px`, then the middle `size_px` square.
    SQUASH: the whole of it resized to the square, its proportions given up.
    """

    CENTRE = "centre"
    SQUASH = "squash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What a network expects: a square of `size_px`, each channel (x - mean) / deviation of values 0..255."""

    fit: Fit = Fit.CENTRE
    size_px: int = 224
    shorter_side_px: int = 256
    mean: Triple
    deviation: Triple

    def square(self, picture: bytes) -> Pixels | Rejected:
        """Return the size_px x size_px x 3 pixels of a stored picture, or why it has none."""
        image = decoded(picture)
        return image if isinstance(image, Rejected) else np.array(self._fitted(image))

    def _fitted(self, image: Image.Image) -> Image.Image:
        size = self.size_px
        if self.fit is Fit.SQUASH:
            return image.resize((size, size), Image.Resampling.BILINEAR)
        shorter = min(image.size)
        if shorter != self.shorter_side_px:
            scale = self.shorter_side_px / shorter
            resized = (round(image.width * scale), round(image.height * scale))
            image = image.resize(resized, Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))

    def square_of(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return where the square lies in a picture of this size: left, top, right, bottom as shares 0..1 of it."""
        if self.fit is Fit.SQUASH:
            return (0.0, 0.0, 1.0, 1.0)
        share = self.size_px / self.shorter_side_px * min(width, height)
        across, down = share / width, share / height
        return ((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)


def decoded(picture: bytes) -> Image.Image | Rejected:
    """Return the RGB image of a stored picture, or why there is none."""
    try:
        return decode_image(picture, max_pixels=MAX_PIXELS, min_side_px=1, allow_animated=False)
    except ImageRejected as error:
        return Rejected(str(error))
