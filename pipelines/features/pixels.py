"""From a stored picture to the pixels that a network reads: decoding, then resizing or cropping.

The stored copy has a shorter side of 256 px, so that a centre crop is a cut and no resampling. Pixels stay bytes here:
a quarter of what travels to a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.values import Rejected, Row
from pipelines.settings import FeaturesConfig
from schemas.codecs import ImageRejected, decode_image

Pixels = npt.NDArray[np.uint8]  # H x W x 3, RGB, or N of them

MAX_PIXELS = 50_000_000  # beyond any stored copy: only a file that is none has more


class Square(NamedTuple):
    """The pixels that a network reads, and where they lie in their picture: left, top, right, bottom as shares 0..1."""

    pixels: Pixels
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What a network expects: a square of `size_px`, each channel (x - mean) / deviation of values 0..255.

    Attributes:
        fit: how a picture of any form becomes a square. `centre`: its shorter side resized to `shorter_side_px`, then
            the middle `size_px` square. `squash`: all of it resized to the square, its proportions given up. `whole`:
            it stays as it is.
        mean: of red, green and blue, as is `deviation`.
    """

    fit: Literal["centre", "squash", "whole"] = "centre"
    size_px: int = 224
    shorter_side_px: int = 256
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def square(self, picture: bytes) -> Square | Rejected:
        """Return the pixels of a stored picture, or why it has none."""
        try:
            image = decode_image(picture, max_pixels=MAX_PIXELS, min_side_px=1, allow_animated=False)
        except ImageRejected as error:
            return Rejected(str(error))
        size = self.size_px
        if self.fit != "centre":
            shown = image if self.fit == "whole" else image.resize((size, size), Image.Resampling.BILINEAR)
            return Square(np.array(shown), (0.0, 0.0, 1.0, 1.0))
        scale = self.shorter_side_px / min(image.size)
        if scale != 1:
            resized = (round(image.width * scale), round(image.height * scale))
            image = image.resize(resized, Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        cut = (left, top, left + size, top + size)
        across, down = size / image.width, size / image.height
        return Square(np.array(image.crop(cut)), ((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2))


class PictureExtractor(ABC):
    """What extractors of pictures share: threads that decode, and the order in which pictures go through a network.

    On a CPU one picture at a time, each thread with one of its own: its arithmetic is then the same whatever shares its
    batch. On a GPU batches of one shape, filled up with black. Threads decode ahead, and a batch is made ready while
    another is under way.
    """

    columns: Any

    def __init__(
        self, config: FeaturesConfig, preprocessing: Preprocessing, prepare_thread: Callable[[], None] | None = None
    ) -> None:
        self.config, self.preprocessing = config, preprocessing
        self.takes_batches = False
        self._decoding = ThreadPoolExecutor(max(config.threads, 1), initializer=prepare_thread)
        self._passes = ThreadPoolExecutor(2)

    @abstractmethod
    def rows(self, squares: Sequence[Square], pixels: Pixels) -> Sequence[Row]:
        """Return the columns' values of squares, which are the first of N x H x W x 3 pixels."""

    def extract(self, pictures: Sequence[bytes]) -> list[Row]:
        """Return the value of each column for each stored picture; one that cannot be read is rejected by all."""
        self.load()
        if not self.takes_batches:
            return list(self._decoding.map(self._one, pictures))
        squares = self._decoding.map(self.preprocessing.square, pictures)
        batches = iter(lambda: list(islice(squares, self.config.batch_images)), [])
        return [row for rows in self._passes.map(self._batch, batches) for row in rows]

    def load(self) -> None:
        """Load what threads share, before there are several; the columns are always known then."""
        _ = self.columns

    def _one(self, picture: bytes) -> Row:
        return self._batch([self.preprocessing.square(picture)])[0]

    def _batch(self, squares: Sequence[Square | Rejected]) -> list[Row]:
        sound = [square for square in squares if isinstance(square, Square)]
        found: Iterator[Row] = iter(())
        if sound:
            size = self.config.batch_images if self.takes_batches else 1
            pixels = np.zeros((size, *sound[0].pixels.shape), np.uint8)
            pixels[: len(sound)] = [square.pixels for square in sound]
            found = iter(self.rows(sound, pixels))
        return [(square,) * len(self.columns) if isinstance(square, Rejected) else next(found) for square in squares]
