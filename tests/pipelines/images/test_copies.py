"""Copies of pictures: their size, what of the original they show, and that their bytes are the same everywhere."""

import numpy as np
import pytest
from cykooz_resizer import CpuExtensions, Resizer
from picture_files import file_of, noise
from PIL import Image

from pipelines.images import inspect
from pipelines.images.inspect import MAX_ASPECT, encode_jpeg
from schemas.codecs import decode_image


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

        def resizer(extensions: CpuExtensions = extensions) -> Resizer:
            limited = Resizer()
            limited.cpu_extensions = extensions
            return limited

        monkeypatch.setattr(inspect, "Resizer", resizer)
        made.add(encode_jpeg(picture))
    assert len(made) == 1
