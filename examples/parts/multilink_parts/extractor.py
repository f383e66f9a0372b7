"""The extractor `colour-histogram`: which colours a picture has, in 64 numbers.

multilink build ... --set features.images=colour-histogram
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from pipelines.features.catalogue import Entry
from pipelines.features.values import Row, feature_column
from pipelines.features.weights import WeightFile
from pipelines.settings import FeaturesConfig

LEVELS = 4  # of each channel
DIMENSIONS = LEVELS**3


class ColourHistogram:
    """Shares of the pixels of a stored picture by their colour, in 4 x 4 x 4 boxes."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        depends_on = {"computation": "histogram of 4 x 4 x 4 boxes, version 1", "numpy": np.__version__}
        self.columns = (feature_column(network, config, DIMENSIONS, depends_on),)

    def extract(self, pictures: Sequence[bytes]) -> list[Row]:
        """Return a vector of each picture, given as JPEG."""
        return [(self._shares(picture),) for picture in pictures]

    def _shares(self, picture: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(picture)) as opened:
            boxes = np.asarray(opened.convert("RGB"), np.int64) * LEVELS // 256
        numbers = boxes @ np.array([LEVELS**2, LEVELS, 1])
        return (np.bincount(numbers.ravel(), minlength=DIMENSIONS) / numbers.size).astype(np.float32)


ENTRIES = {"colour-histogram": Entry(factory=ColourHistogram, network="colour-histogram")}
