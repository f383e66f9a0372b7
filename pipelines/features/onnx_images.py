"""Image extractors from a user's own network: vectors (any tower of a joint embedding too) and detected regions.

On a CPU one picture a run; on a GPU vectors come from batches, where the network's first axis is of any length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.features.onnx_session import OnnxNetwork, unit_length
from pipelines.features.onnx_sidecars import BoxUnit, Channels, DetectorSidecar, OnnxFiles, VectorSidecar
from pipelines.features.regions import kept_regions
from pipelines.features.values import Compute, FeatureKind, RegionLimits, Regions, Rejected, Vector
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.versions import fingerprint

Pictures = npt.NDArray[np.float32]  # N x 3 x H x W


class _OnnxImages(ABC):
    """What the two share: the network, and pictures as it wants them."""

    def __init__(self, files: OnnxFiles, sidecar: VectorSidecar | DetectorSidecar, compute: Compute) -> None:
        self.name = files.name
        self._network = OnnxNetwork(files.name, files.network, compute)
        self._sidecar = sidecar
        self._batch = compute.batch
        self._preprocessing = sidecar.preprocessing

    def fingerprint(self) -> str:
        return fingerprint({"sidecar": resolve(self._sidecar), **self._extra(), **self._network.describe()})

    def bare(self, pictures: Sequence[bytes]) -> Callable[[], object]:
        """Return the runs alone over these pictures, decoded beforehand: the bound of `extract`."""
        squares = [self._preprocessing.square(picture) for picture in pictures]
        inputs = [self._values(square[None]) for square in squares if not isinstance(square, Rejected)]

        def run() -> None:
            for _ in self._network.pool.map(self._outputs, inputs):
                pass

        return run

    def _extra(self) -> dict[str, object]:
        return {}

    @abstractmethod
    def _wanted(self) -> list[str]:
        """Return the names of the outputs."""

    def _outputs(self, pictures: Pictures) -> list[npt.NDArray[Any]]:
        return self._network.run({self._network.input(self._sidecar.input): pictures}, self._wanted())

    def _values(self, pixels: npt.NDArray[np.uint8]) -> Pictures:
        """Return N x H x W x 3 pixels as the network's N x 3 x H x W values."""
        values = pixels.astype(np.float32)
        values -= np.asarray(self._preprocessing.mean, np.float32)
        values /= np.asarray(self._preprocessing.deviation, np.float32)
        ordered = values if self._sidecar.channels is Channels.RGB else values[..., ::-1]
        return np.ascontiguousarray(ordered.transpose(0, 3, 1, 2))


class OnnxVectors(_OnnxImages):
    """One vector a picture: the network's output, flattened."""

    kind = FeatureKind.VECTOR

    def __init__(self, files: OnnxFiles, sidecar: VectorSidecar, compute: Compute) -> None:
        super().__init__(files, sidecar, compute)
        self._should_normalise = sidecar.normalise
        self._output_name = sidecar.output

    @cached_property
    def dimensions(self) -> int:
        """The length of a vector, tried out on a black picture."""
        size = self._preprocessing.size_px
        return int(self._vectors(self._values(np.zeros((1, size, size, 3), np.uint8))).shape[1])

    def extract(self, images: Sequence[bytes]) -> list[Vector | Rejected]:
        """Return one vector per stored picture, in order."""
        step = self._batch if self._network.is_gpu and self._takes_batches else 1
        if step == 1:
            return list(self._network.pool.map(self._one, images))
        return [value for begin in range(0, len(images), step) for value in self._several(images[begin : begin + step])]

    def _wanted(self) -> list[str]:
        return [self._network.output(self._output_name)]

    @property
    def _takes_batches(self) -> bool:
        return self._network.takes_batches(self._network.input(self._sidecar.input))

    def _one(self, picture: bytes) -> Vector | Rejected:
        square = self._preprocessing.square(picture)
        if isinstance(square, Rejected):
            return square
        vector: Vector = self._vectors(self._values(square[None]))[0]
        return vector

    def _several(self, pictures: Sequence[bytes]) -> Iterator[Vector | Rejected]:
        """Yield the vectors of one batch, which is always of one size: what is missing is black."""
        squares = list(self._network.pool.map(self._preprocessing.square, pictures))
        size = self._preprocessing.size_px
        pixels = np.zeros((self._batch, size, size, 3), np.uint8)
        for row, square in enumerate(squares):
            pixels[row] = 0 if isinstance(square, Rejected) else square
        vectors = self._vectors(self._values(pixels))
        for row, square in enumerate(squares):
            yield square if isinstance(square, Rejected) else vectors[row]

    def _vectors(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        found = self._outputs(pictures)[0].astype(np.float32)
        if found.shape[0] != len(pictures) or found.ndim < 2 or found.size != len(pictures) * found.shape[1]:
            raise ConfigError(
                f"{self._network.path}: output {self._wanted()[0]}: expected {len(pictures)} x d values, found "
                f"{' x '.join(map(str, found.shape))}: name an output behind the pooling"
            )
        vectors = found.reshape(len(pictures), -1)
        return unit_length(vectors) if self._should_normalise else vectors


class OnnxDetector(_OnnxImages):
    """The regions that a network finds in a picture."""

    kind = FeatureKind.REGIONS

    def __init__(self, files: OnnxFiles, sidecar: DetectorSidecar, compute: Compute, limits: RegionLimits) -> None:
        super().__init__(files, sidecar, compute)
        self._detector = sidecar
        self._limits = limits
        text = files.companion(sidecar.classes).read_text(encoding="utf-8")
        self._names = tuple(line.strip() for line in text.splitlines())

    @cached_property
    def dimensions(self) -> int:
        """The length of a region's vector, tried out on a black picture where the network does not state it."""
        stated = self._network.width(self._network.output(self._detector.vectors))
        if stated is not None:
            return stated
        size = self._preprocessing.size_px
        return int(self._found(np.zeros((size, size, 3), np.uint8))[3].shape[1])

    def extract(self, images: Sequence[bytes]) -> list[Regions | Rejected]:
        """Return the regions of each stored picture, in order."""
        return list(self._network.pool.map(self._one, images))

    def _extra(self) -> dict[str, object]:
        return {"limits": resolve(self._limits), "names": self._names}

    def _wanted(self) -> list[str]:
        wanted = (self._detector.boxes, self._detector.scores, self._detector.labels, self._detector.vectors)
        return [self._network.output(name) for name in wanted]

    def _one(self, picture: bytes) -> Regions | Rejected:
        square = self._preprocessing.square(picture)
        if isinstance(square, Rejected):
            return square
        boxes, scores, labels, vectors = self._found(square)
        kept = kept_regions(scores, self._limits)
        unit = self._preprocessing.size_px if self._detector.box_unit is BoxUnit.PIXEL else 1
        return Regions(
            boxes=np.clip(boxes[kept] / np.float32(unit), 0, 1),
            labels=tuple(self._label(int(place)) for place in labels[kept]),
            scores=np.clip(scores[kept], 0, 1),
            vectors=vectors[kept],
        )

    def _found(self, square: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], ...]:
        """Return boxes R x 4, scores R, labels R and vectors R x d, float32 but for the labels."""
        boxes, scores, labels, vectors = self._outputs(self._values(square[None]))
        count = scores.size
        shapes = (boxes.shape, labels.shape, vectors.shape)
        if (
            boxes.size != 4 * count
            or labels.size != count
            or vectors.ndim < 2
            or vectors.size != count * vectors.shape[-1]
        ):
            raise ConfigError(f"{self._network.path}: expected R x 4, R, R, R x d for R = {count}, found {shapes}")
        return (
            boxes.reshape(count, 4).astype(np.float32),
            scores.reshape(count).astype(np.float32),
            labels.reshape(count),
            vectors.reshape(count, vectors.shape[-1]).astype(np.float32),
        )

    def _label(self, place: int) -> str:
        if not 0 <= place < len(self._names):
            raise ConfigError(
                f"{self._network.path}: label {place}: {self._detector.classes} has {len(self._names)} names"
            )
        return self._names[place]
