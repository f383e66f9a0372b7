"""What an extractor gives for one picture, and what it may use to compute it.

A value is a vector, regions or classes; or `Rejected`, for one bad picture among good ones. How values are kept is
in `cache.py`, how they are stored in shards in `schemas.feature_arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from schemas.configs import require
from schemas.features import FeatureKind

__all__ = [
    "Classes",
    "Compute",
    "Device",
    "FeatureKind",
    "ImageValue",
    "Matrix",
    "Precision",
    "RegionLimits",
    "Regions",
    "Rejected",
    "Vector",
]

Vector = npt.NDArray[np.float32]  # d
Matrix = npt.NDArray[np.float32]  # N x d


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Regions of one picture, surest first.

    Attributes:
        boxes: R x 4 float32 (left, top, right, bottom), as shares 0..1 of the stored picture's width and height.
        labels: R class names ("concepts").
        scores: R float32 in 0..1, falling.
        vectors: R x d float32.
    """

    boxes: npt.NDArray[np.float32]
    labels: tuple[str, ...]
    scores: npt.NDArray[np.float32]
    vectors: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The likeliest classes of one picture, and their probabilities (float32, falling)."""

    labels: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why there is no value of one picture; the others of its batch have theirs."""

    message: str


ImageValue = Vector | Regions | Classes


class Device(StrEnum):
    """`auto` takes a GPU where there is one."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """`auto` is float32 on a CPU and float16 on a GPU."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What an extractor computes with; it changes the speed, and never what is asked for.

    Attributes:
        threads: pictures under way at once on a CPU.
        device: where the network runs.
        precision: of its arithmetic; part of an extractor's fingerprint where values depend on it.
        batch: pictures in one forward pass on a GPU.
    """

    threads: int = 1
    device: Device = Device.AUTO
    precision: Precision = Precision.AUTO
    batch: int = 16

    def __post_init__(self) -> None:
        require(self.threads >= 1, field="features.threads", value=self.threads, rule="must be at least 1")
        require(self.batch >= 1, field="features.batch_images", value=self.batch, rule="must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLimits:
    """How many regions of a picture are kept: those of at least `score`, but at least `least` and at most `most`.

    A picture on which the extractor finds fewer than `least` has what it finds.
    """

    least: int = 10
    most: int = 36
    score: float = 0.2

    def __post_init__(self) -> None:
        require(1 <= self.most <= 100, field="features.max_regions", value=self.most, rule="must be in 1..100")
        is_less = 0 <= self.least <= self.most
        require(is_less, field="features.min_regions", value=self.least, rule="must be in 0..features.max_regions")
        require(0 <= self.score <= 1, field="features.min_score", value=self.score, rule="must be in [0, 1]")
