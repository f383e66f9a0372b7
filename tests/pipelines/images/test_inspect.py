"""What is known of a picture follows from its bytes."""

import hashlib
import io

import imagehash
import numpy as np
import pytest
from PIL import Image

from pipelines.images.inspect import inspect_image, is_flat
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.documents import Image as Known


def picture(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    """Return smooth random colours."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 9, 3), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def file_of(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def inspect(data: bytes, **settings: int) -> tuple[Known, bytes]:
    return inspect_image(data, config=ImagesConfig(**settings), fingerprint=FingerprintName.PHASH)


def test_a_picture_is_described() -> None:
    data = file_of(picture())
    image = inspect(data)[0]
    assert image.hash == hashlib.sha256(data).hexdigest()
    assert (image.format, image.width, image.height, image.original_bytes) == ("png", 60, 40, len(data))
    assert not image.is_flat
    assert image.fingerprint == str(imagehash.phash(picture()))
    assert len(image.fingerprint) == 16


def test_size_and_fingerprint_are_of_the_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = picture().transpose(Image.Transpose.ROTATE_90)
    image = inspect(file_of(stored, exif=exif))[0]
    assert (image.width, image.height) == (60, 40)
    assert image.fingerprint == str(imagehash.phash(picture()))


@pytest.mark.parametrize(
    ("levels", "flat"), [((9, 9, 9), True), ((9, 11, 10), True), ((9, 12, 10), False), ((0, 255, 0), False)]
)
def test_flat_is_within_two_levels(levels: tuple[int, ...], flat: bool) -> None:
    pixels = np.full((20, 20, 3), levels[0], np.uint8)
    pixels[3, 3, 1], pixels[4, 4, 1] = levels[1:]
    assert is_flat(Image.fromarray(pixels)) == flat


def test_a_flat_colour_survives_jpeg() -> None:
    assert inspect(file_of(Image.new("RGB", (50, 50), (200, 30, 90)), "JPEG", quality=60))[0].is_flat


def test_two_channels_of_different_levels_are_still_one_colour() -> None:
    assert is_flat(Image.new("RGB", (20, 20), (0, 128, 255)))
