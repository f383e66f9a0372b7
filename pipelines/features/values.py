"""What an image extractor gives for a picture, and the computing it may use for it.

Three kinds of value, each a kind of column: a vector, regions with their concepts, classes with their probabilities. A
picture without a value is `Rejected`, with the reason as its message. How values are stored is in `schemas`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from schemas.configs import require

Vector = npt.NDArray[np.float32]  # d
Matrix = npt.NDArray[np.float32]  # N x d


class FeatureKind(StrEnum):
    VECTOR = "vector"
    REGIONS = "regions"
    CLASSES = "classes"


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Parts of a picture, the most certain first.

    Attributes:
        boxes: R x 4, (left, top, right, bottom) as shares 0..1 of the stored picture's width and height.
        labels: R class names ("concepts").
        scores: R, in 0..1, falling.
        vectors: R x d.
    """

    boxes: npt.NDArray[np.float32]
    labels: tuple[str, ...]
    scores: npt.NDArray[np.float32]
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The most probable classes of a picture, with their probabilities, falling."""

    labels: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A picture that has no value, and why."""

    message: str


ImageValue = Vector | Regions | Classes


class Device(StrEnum):
    """Where networks run; `auto` is a GPU when there is one."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """The numbers of a forward pass; `auto` is float32 on a CPU and float16 on a GPU."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What an extractor computes with: it changes the speed, never what is asked for.

    Attributes:
        threads: pictures under way at once on a CPU, or being decoded for a GPU.
        batch: pictures of a GPU's forward pass.
    """

    threads: int = 1
    device: Device = Device.AUTO
    precision: Precision = Precision.AUTO
    batch: int = 16

    def __post_init__(self) -> None:
        require(self.threads >= 1, field="features.threads", value=self.threads, rule="at least 1")
        require(self.batch >= 1, field="features.batch", value=self.batch, rule="at least 1")


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
