"""What a picture's colours and edges are, without a network: 135 numbers, all but the last 0 to 1.

    72    shares of pixels by hue, saturation and brightness, in 8 x 3 x 3 boxes
    48    a thumbnail of 4 x 4 cells, red, green and blue of each
     8    how much of the edges' strength points into each eighth of the circle
     7    width in width and height; mean and deviation of brightness and of saturation; strength of edges;
          colourfulness (Hasler and Suesstrunk 2003, in shares of 255)

The picture is squashed to 64 x 64 pixels. Sums are of whole numbers, so that every processor gives the same values.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.catalogue import Entry
from pipelines.features.pixels import PictureExtractor, Pixels, Preprocessing, Square
from pipelines.features.values import Row, feature_column
from pipelines.features.weights import WeightFile
from pipelines.settings import FeaturesConfig
from schemas.codecs import picture_libraries

DIMENSIONS = 72 + 48 + 8 + 7
_SIDE, _CELLS, _FULL = 64, 4, 255
_BOXES = (8, 3, 3)  # of hue, saturation, brightness
_GREY = (299, 587, 114)  # thousandths of red, green and blue (ITU-R BT.601)
Whole = npt.NDArray[np.int64]


class ColourShape(PictureExtractor):
    """Extractor `colour-shape`."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        super().__init__(config, Preprocessing(fit="whole", mean=(0.0,) * 3, deviation=(1.0,) * 3))
        depends_on = {"computation": "colours and edges, version 1", "libraries": picture_libraries()}
        self.columns = (feature_column(network, config, DIMENSIONS, depends_on),)

    def rows(self, squares: Sequence[Square], pixels: Pixels) -> list[Row]:
        """Return the vector of one picture."""
        height, width, _ = pixels[0].shape
        small = Image.fromarray(pixels[0]).resize((_SIDE, _SIDE), Image.Resampling.BOX)
        colours, hsv = (np.asarray(image, np.int64) for image in (small, small.convert("HSV")))
        boxes = np.ravel_multi_index([hsv[..., i] * size // 256 for i, size in enumerate(_BOXES)], _BOXES)
        directions, strength = _edges(colours @ np.array(_GREY) // 1000)
        parts = [
            np.bincount(boxes.ravel(), minlength=72) / boxes.size,
            colours.reshape(_CELLS, -1, _CELLS, _SIDE // _CELLS, 3).sum(axis=(1, 3)).ravel()
            / (boxes.size / 16 * _FULL),
            directions,
            [
                width / (width + height),
                *_moments(hsv[..., 2]),
                *_moments(hsv[..., 1]),
                strength,
                _colourfulness(colours),
            ],
        ]
        return [(np.concatenate(parts).astype(np.float32),)]


def _edges(grey: Whole) -> tuple[npt.NDArray[np.float64], float]:
    """Return the shares of eight directions in the strength of all edges, and the mean strength, 0 to 1."""
    across, down = grey[1:-1, 2:] - grey[1:-1, :-2], grey[2:, 1:-1] - grey[:-2, 1:-1]
    strength = abs(across) + abs(down)
    direction = 4 * (down < 0) + 2 * (across < 0) + (abs(down) > abs(across))
    sums = np.array([strength[direction == number].sum() for number in range(8)])
    return sums / max(1, sums.sum()), sums.sum() / (2 * _FULL * strength.size)


def _moments(values: Whole) -> tuple[float, float]:
    """Return the mean and the standard deviation of whole numbers 0..255, as shares of 255."""
    total, squares, count = int(values.sum()), int((values**2).sum()), values.size
    return total / count / _FULL, float(np.sqrt(count * squares - total**2)) / count / _FULL


def _colourfulness(colours: Whole) -> float:
    red, green, blue = np.moveaxis(colours, -1, 0)
    (mean, spread), (other_mean, other_spread) = _moments(red - green), _moments(red + green - 2 * blue)
    # Of yellow and blue there are halves: doubled, sums stay whole.
    return float(np.sqrt(spread**2 + other_spread**2 / 4) + 0.3 * np.sqrt(mean**2 + other_mean**2 / 4))


ENTRIES = {"colour-shape": Entry(factory=ColourShape, network="colour-shape")}
