"""What is known of a picture follows from its bytes; so does its copy. Vectors that a user has are looked up by row."""

import hashlib
from copy import copy
from functools import partial
from pathlib import Path

import imagehash
import numpy as np
import pytest
from cykooz_resizer import CpuExtensions, Resizer
from picture_files import file_of, noise, smooth
from PIL import Image

from pipelines.images.inspect import MAX_ASPECT, encode_jpeg, given_array, given_vector, inspect_image, is_flat
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.documents import Image as Known
from schemas.failures import Reason
from schemas.messages import ConfigError, NotFoundError

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
    image = inspect(file_of(PICTURE.transpose(Image.Transpose.ROTATE_90), exif=exif))[0]
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


def decode(data: bytes) -> Image.Image:
    return decode_image(data, max_pixels=1_000_000, min_side_px=16, allow_animated=False)


def red(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), (255, 0, 0))


@pytest.mark.parametrize(
    ("size", "stored"),
    [
        ((512, 512), (256, 256)),
        ((1000, 500), (512, 256)),
        ((16, 24), (256, 384)),
        ((20, 4000), (256, 256 * MAX_ASPECT)),
        ((4000, 20), (256 * MAX_ASPECT, 256)),
    ],
)
def test_the_shorter_side_of_the_copy_is_256(size: tuple[int, int], stored: tuple[int, int]) -> None:
    jpeg = encode_jpeg(red(*size))
    assert decode(jpeg).size == stored
    assert jpeg == encode_jpeg(red(*size))


def test_a_copy_has_no_comment_of_its_original() -> None:
    plain, told = (file_of(red(300, 400), "JPEG", **said) for said in ({}, {"comment": b"taken by nobody"}))
    assert b"nobody" in told and encode_jpeg(decode(told)) == encode_jpeg(decode(plain))


def test_of_a_strip_the_middle_is_kept() -> None:
    strip = red(20, 400)
    strip.paste((0, 0, 255), (0, 120, 20, 280))
    copy = np.asarray(decode(encode_jpeg(strip, quality=100)))
    assert copy.shape == (2048, 256, 3)
    assert copy[60:-60, :, 2].min() > 240  # at the very ends the filter sees a little beyond


SIZES = [(400, 300), (300, 401), (16, 24), (1535, 900), (2311, 1543), (3200, 1500), (21, 800), (900, 4001)]


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_is_what_pillow_makes_to_one_level(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Image.Image] = []
    monkeypatch.setattr(Image.Image, "save", lambda self, *_, **__: saved.append(self))
    encode_jpeg(noise(*size))
    (copy,) = saved
    width, height = size
    shorter = min(size)
    spare = [(side - min(side, MAX_ASPECT * shorter)) // 2 for side in size]
    box = (spare[0], spare[1], width - spare[0], height - spare[1])
    expected = noise(*size).resize(copy.size, Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
    assert np.abs(np.asarray(copy, np.int16) - np.asarray(expected, np.int16)).max() <= 1


@pytest.mark.parametrize("size", SIZES)
def test_copies_have_the_same_bytes_on_every_processor(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    fastest = Resizer().cpu_extensions
    picture = noise(*size)
    made = set()
    for extensions in {CpuExtensions.none, fastest} | (
        {CpuExtensions.sse4_1} if fastest is CpuExtensions.avx2 else set()
    ):
        limited = Resizer()
        limited.cpu_extensions = extensions
        monkeypatch.setattr("pipelines.images.inspect.Resizer", partial(copy, limited))
        made.add(encode_jpeg(picture))
    assert len(made) == 1


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "features.npy", array)
    return str(folder / "features.npy")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_rows_are_looked_up_as_they_are(tmp_path: Path, kind: type) -> None:
    path = saved(tmp_path, np.arange(12).reshape(4, 3).astype(kind))
    assert given_vector(2, path).tolist() == [6, 7, 8]
    assert given_vector(0, path).dtype == kind


def test_a_bad_row_fails_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, np.array([[1.0, 2.0], [7e4, 0.0], [np.nan, 0.0], [65504.0, -65504.0]], np.float32))
    assert given_vector(3, path).tolist() == [65504, -65504]
    for row in (1, 2, 4):
        with pytest.raises(ImageRejected, match=f"row {row}: ") as caught:
            given_vector(row, path)
        assert caught.value.reason == Reason.FEATURE_MISSING


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such feature array"):
        given_array(str(tmp_path / "absent.npy"))
    for name, array in (("flat", np.zeros(3)), ("text", np.array([["a", "b"]]))):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(ConfigError, match="rows x dimensions"):
            given_array(str(tmp_path / f"{name}.npy"))
    (tmp_path / "broken.npy").write_text("no array")
    with pytest.raises(ConfigError, match=r"expected an \.npy array"):
        given_array(str(tmp_path / "broken.npy"))
