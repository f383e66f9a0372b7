"""From a stored picture to the values that a network reads: decoding, resizing or cropping, scaling.

The stored copy has a shorter side of 256 px, so that a centre crop is a cut and no resampling.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.values import Float32, Rejected, Row
from pipelines.settings import FeaturesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.configs import PositiveInt, Settings

Pixels = npt.NDArray[np.uint8]  # H x W x 3, RGB, or N of them

MAX_PIXELS = 50_000_000  # beyond any stored copy: only a file that is none has more
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time, and in how many


class Square(NamedTuple):
    """The pixels that a network reads, and where they lie in their picture: left, top, right, bottom as shares 0..1."""

    pixels: Pixels
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing(Settings):
    """What a network expects: a square of `size_px`, each channel (x - mean) / deviation of values 0..255.

    Attributes:
        fit: how a picture of any form becomes a square. `centre`: its shorter side resized to `shorter_side_px`, then
            the middle `size_px` square. `squash`: all of it resized to the square, its proportions given up. `whole`:
            it stays as it is.
        mean: of red, green and blue, as is `deviation`.
        channels: the order in which the network wants them.
    """

    fit: Literal["centre", "squash", "whole"] = "centre"
    size_px: PositiveInt = 224
    shorter_side_px: int = 256
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    channels: Literal["rgb", "bgr"] = "rgb"

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

    def values(self, pixels: Pixels) -> Float32:
        """Return N x H x W x 3 pixels as the N x 3 x H x W values that a network reads."""
        mean, deviation = np.array([self.mean, self.deviation], np.float32)[..., None, None]
        values = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")
        values -= mean
        values /= deviation
        return values if self.channels == "rgb" else np.ascontiguousarray(values[:, ::-1])


class PictureExtractor(ABC):
    """What extractors of pictures share: threads, each of which decodes a few pictures and passes them on.

    As many threads as this process may use cores, or `features.threads`: while some decode, others compute. On a CPU a
    pass has one picture. On a GPU it has `batch` of them, filled up with black: every pass has the same shape.
    """

    columns: Any
    batch = 1

    def __init__(self, config: FeaturesConfig, preprocessing: Preprocessing) -> None:
        self.config, self.preprocessing = config, preprocessing

    @abstractmethod
    def rows(self, squares: Sequence[Square], pixels: Pixels) -> Sequence[Row]:
        """Return the columns' values of squares, which are the first of N x H x W x 3 pixels."""

    def extract(self, pictures: Sequence[bytes]) -> list[Row]:
        """Return the value of each column for each stored picture; one that cannot be read is rejected by all."""
        _ = self.columns  # what threads share is loaded before there are several
        passes = [pictures[start : start + self.batch] for start in range(0, len(pictures), self.batch)]
        return [row for rows in self._threads.map(self._pass, passes) for row in rows]

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.config.threads or cores())

    def _pass(self, pictures: Sequence[bytes]) -> list[Row]:
        squares = [self.preprocessing.square(picture) for picture in pictures]
        sound = [square for square in squares if isinstance(square, Square)]
        found: Iterator[Row] = iter(())
        if sound:
            pixels = np.zeros((self.batch, *sound[0].pixels.shape), np.uint8)
            pixels[: len(sound)] = [square.pixels for square in sound]
            found = iter(self.rows(sound, pixels))
        return [(square,) * len(self.columns) if isinstance(square, Rejected) else next(found) for square in squares]


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, within the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or none with a quota: "max 100000"
        quota, period = map(int, _QUOTA.read_text().split())
        count = min(count, max(1, quota // period))
    return count
