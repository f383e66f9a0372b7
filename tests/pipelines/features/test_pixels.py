"""From stored pictures to the squares that networks look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.features.pixels import PictureExtractor, Preprocessing, Square
from pipelines.features.values import Rejected
from pipelines.images.inspect import encode_jpeg
from pipelines.settings import FeaturesConfig

NO_SCALE = {"mean": (0.0, 0.0, 0.0), "deviation": (1.0, 1.0, 1.0)}


def edge_at(share: float, width: int = 300) -> Image.Image:
    """Return red with green in it up to a share of its width."""
    pixels = np.zeros((256, width, 3), np.uint8)
    pixels[..., 0] = 255
    pixels[:, : int(share * width), 1] = 200
    return Image.fromarray(pixels)


def edge_of(square: np.ndarray) -> int:
    return int(np.argmax(square[len(square) // 2, :, 1] < 100))


def square_of(preprocessing: Preprocessing, picture: bytes) -> Square:
    square = preprocessing.square(picture)
    assert isinstance(square, Square)
    return square


def test_a_centre_crop_is_a_cut() -> None:
    square = square_of(Preprocessing(**NO_SCALE), encode_jpeg(edge_at(0.5), quality=100)).pixels
    assert (square.shape, square.dtype) == ((224, 224, 3), np.uint8)
    np.testing.assert_allclose(square[100, 50], [255, 200, 0], atol=3)
    assert abs(edge_of(square) - (150 - (300 - 224) // 2)) <= 1


def test_a_squashed_picture_is_whole() -> None:
    square = square_of(Preprocessing(**NO_SCALE, fit="squash"), encode_jpeg(edge_at(0.1), quality=100)).pixels
    assert square.shape == (224, 224, 3)
    assert abs(edge_of(square) - 22) <= 1


@pytest.mark.parametrize("shorter_side_px", [64, 512])
def test_another_size_than_the_stored_one_is_resized(shorter_side_px: int) -> None:
    stored = encode_jpeg(edge_at(0.5), shorter_side_px=shorter_side_px, quality=100)
    assert abs(edge_of(square_of(Preprocessing(**NO_SCALE), stored).pixels) - 112) <= 2


@pytest.mark.parametrize("fit", ["centre", "squash"])
def test_the_square_lies_where_it_says(fit: str) -> None:
    picture = encode_jpeg(edge_at(0.4), quality=100)
    square, (left, top, right, bottom) = square_of(Preprocessing(**NO_SCALE, fit=fit), picture)  # type: ignore[arg-type]
    assert left + edge_of(square) / 224 * (right - left) == pytest.approx(0.4, abs=0.01)
    assert (top, bottom) == ((1 / 16, 15 / 16) if fit == "centre" else (0, 1))


class Sums(PictureExtractor):
    """The sum of a picture's pixels, in batches."""

    columns, batch = ("sums",), 3

    def __init__(self) -> None:
        super().__init__(FeaturesConfig(), Preprocessing(**NO_SCALE))
        self.seen: list[np.ndarray] = []

    def rows(self, squares: Sequence[Square], pixels: np.ndarray) -> list[Any]:
        self.seen.append(pixels)
        return [(each.sum(dtype=np.int64),) for each in pixels]


def test_batches_are_of_one_shape_and_filled_up_with_black() -> None:
    pictures = [encode_jpeg(edge_at(share)) for share in (0.2, 0.4, 0.6, 0.8)]
    sums = Sums()
    first, broken, *others = sums.extract([pictures[0], b"", *pictures[1:]])
    assert isinstance(broken[0], Rejected)
    expected = [square_of(sums.preprocessing, picture).pixels.sum(dtype=np.int64) for picture in pictures]
    assert [first[0], *(row[0] for row in others)] == expected
    assert [pixels.shape for pixels in sums.seen] == [(3, 224, 224, 3)] * 2
    assert sorted(int(pixels.any(axis=(1, 2, 3)).sum()) for pixels in sums.seen) == [2, 2]


def test_what_is_no_picture_is_rejected_with_the_reason() -> None:
    whole = encode_jpeg(edge_at(0.5))
    for broken, reason in ((b"", "not-an-image"), (b"text", "not-an-image"), (whole[:900], "corrupt-image")):
        found = Preprocessing(**NO_SCALE).square(broken)
        assert isinstance(found, Rejected) and found.message.startswith(reason)
