"""What one forward pass of a convolutional network gives: a vector, the most probable classes, or the cells of a grid.

    densenet169            CnnVectors  the mean of the last feature map, the input of the classifier
    densenet169-classes    CnnClasses  the 20 most probable ImageNet classes (Hessel 2019, object detection)
    densenet169-grid       CnnGrid     the cells of the last feature map as regions; `grid`: of efficientnet-lite0

The same for every network of `architectures.py`. Extractors of one network share its forward pass (`trunk.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.imagenet import class_names, softmax, top_classes
from pipelines.features.regions import kept_regions
from pipelines.features.trunk import Part, Seen, trunk_of
from pipelines.features.values import Classes, Compute, FeatureKind, RegionLimits, Regions, Rejected, Vector
from pipelines.features.weights import WeightFile
from schemas.configs import resolve
from schemas.versions import fingerprint

GRID = "grid"
_GRID_NETWORK = "efficientnet-lite0"  # its weights come with a package
_CLASSES_SUFFIX, _GRID_SUFFIX = "-classes", "-grid"


class _Cnn:
    """What the three share: the name, the trunk, and the bound of its speed."""

    def __init__(self, name: str, network: str, parts: Sequence[Part], compute: Compute, weights: _Weights) -> None:
        self.name = name
        self._trunk = trunk_of(network, compute=compute, weights=weights)
        self._trunk.want(*parts)

    def bare(self, pictures: Sequence[bytes]) -> Callable[[], object]:
        """Return the forward passes alone over these pictures, decoded beforehand: the bound of `extract`."""
        return self._trunk.bare(pictures)


_Weights = Mapping[str, WeightFile]


class CnnVectors(_Cnn):
    """The mean over the places of the last feature map, d float32 values."""

    kind = FeatureKind.VECTOR

    def __init__(self, name: str, *, compute: Compute, weights: _Weights) -> None:
        super().__init__(name, name, [Part.VECTOR], compute, weights)
        self.dimensions = self._trunk.architecture.dimensions

    def fingerprint(self) -> str:
        return fingerprint({"value": "mean over places", **self._trunk.describe()})

    def extract(self, images: Sequence[bytes]) -> list[Vector | Rejected]:
        """Return the d values of each stored picture, in order."""
        return [seen if isinstance(seen, Rejected) else seen[Part.VECTOR] for seen in self._trunk.look(images)]


class CnnClasses(_Cnn):
    """The 20 most probable ImageNet classes and their probabilities (Hessel 2019, 3.3)."""

    kind = FeatureKind.CLASSES
    dimensions = 0

    def __init__(self, name: str, *, compute: Compute, weights: _Weights) -> None:
        super().__init__(name, name.removesuffix(_CLASSES_SUFFIX), [Part.LOGITS], compute, weights)

    def fingerprint(self) -> str:
        return fingerprint({"value": "most probable classes", "names": class_names(), **self._trunk.describe()})

    def extract(self, images: Sequence[bytes]) -> list[Classes | Rejected]:
        """Return the classes of each stored picture, in order."""
        return [seen if isinstance(seen, Rejected) else _classes(seen) for seen in self._trunk.look(images)]


class CnnGrid(_Cnn):
    """The cells of the last feature map (7 x 7 of a 224-px square), each with its own most probable ImageNet class.

    The classifier is linear in the mean over places, so that applied to one place it says what that place adds (Zhou et
    al. 2016, eq. 2): a concept, its probability as the score. A box is the cell's part of the square, not the larger
    field that the place can see.
    """

    kind = FeatureKind.REGIONS

    def __init__(self, name: str, *, compute: Compute, weights: _Weights, regions: RegionLimits) -> None:
        network = _GRID_NETWORK if name == GRID else name.removesuffix(_GRID_SUFFIX)
        super().__init__(name, network, [Part.PLACES, Part.PLACE_LOGITS], compute, weights)
        self.dimensions = self._trunk.architecture.dimensions
        self._limits = regions

    def fingerprint(self) -> str:
        return fingerprint(
            {"value": "cells", "limits": resolve(self._limits), "names": class_names(), **self._trunk.describe()}
        )

    def extract(self, images: Sequence[bytes]) -> list[Regions | Rejected]:
        """Return the cells of each stored picture, in order."""
        found = zip(images, self._trunk.look(images), strict=True)
        return [seen if isinstance(seen, Rejected) else self._regions(picture, seen) for picture, seen in found]

    def _regions(self, picture: bytes, seen: Seen) -> Regions:
        places = seen[Part.PLACES]
        height, width, _ = places.shape
        probabilities = softmax(seen[Part.PLACE_LOGITS].reshape(height * width, -1))
        kept = kept_regions(probabilities.max(axis=1), self._limits)
        with Image.open(io.BytesIO(picture)) as image:
            square = self._trunk.architecture.preprocessing.square_of(*image.size)
        names = class_names()
        return Regions(
            boxes=_cells(height, width, square)[kept],
            labels=tuple(names[place] for place in probabilities.argmax(axis=1)[kept]),
            scores=probabilities.max(axis=1)[kept],
            vectors=places.reshape(height * width, -1)[kept],
        )


def _classes(seen: Seen) -> Classes:
    return top_classes(softmax(seen[Part.LOGITS]))


def _cells(height: int, width: int, square: tuple[float, float, float, float]) -> npt.NDArray[np.float32]:
    """Return the boxes of a grid's cells, row by row, where the grid covers `square` of the picture."""
    left, top, right, bottom = square
    across, down = np.linspace(left, right, width + 1), np.linspace(top, bottom, height + 1)
    row, column = (index.reshape(-1) for index in np.indices((height, width)))
    return np.stack([across[column], down[row], across[column + 1], down[row + 1]], axis=1).astype(np.float32)
