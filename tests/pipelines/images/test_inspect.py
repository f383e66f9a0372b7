"""What is known of a picture follows from its bytes."""

import hashlib

import imagehash
import numpy as np
import pytest
from picture_files import file_of, smooth
from PIL import Image

from pipelines.images.inspect import inspect_image, is_flat
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.documents import Image as Known

PICTURE = smooth(60, 40)


def inspect(data: bytes, **settings: int) -> tuple[Known, bytes]:
    return inspect_image(data, config=ImagesConfig(**settings), fingerprint=FingerprintName.PHASH)


def test_a_picture_is_described() -> None:
    data = file_of(PICTURE)
    assert inspect(data)[0] == Known(
        hash=hashlib.sha256(data).hexdigest(),
        format="png",
        width=60,
        height=40,
        original_bytes=len(data),
        fingerprint=str(imagehash.phash(PICTURE)),
        is_flat=False,
    )


def test_size_and_fingerprint_are_of_the_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = PICTURE.transpose(Image.Transpose.ROTATE_90)
    image = inspect(file_of(stored, exif=exif))[0]
    assert (image.width, image.height, image.fingerprint) == (60, 40, str(imagehash.phash(PICTURE)))


@pytest.mark.parametrize(
    ("levels", "flat"), [((9, 9, 9), True), ((9, 11, 10), True), ((9, 12, 10), False), ((0, 255, 0), False)]
)
def test_flat_is_within_two_levels_of_each_channel(levels: tuple[int, ...], flat: bool) -> None:
    pixels = np.full((20, 20, 3), (200, levels[0], 90), np.uint8)
    pixels[3, 3, 1], pixels[4, 4, 1] = levels[1:]
    assert is_flat(Image.fromarray(pixels)) == flat


def test_a_flat_colour_survives_jpeg() -> None:
    assert inspect(file_of(Image.new("RGB", (50, 50), (200, 30, 90)), "JPEG", quality=60))[0].is_flat
