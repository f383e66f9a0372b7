"""Pictures as bytes: what is accepted, what is refused and why, and what comes back."""

import struct
import zlib

import numpy as np
import pytest
from picture_files import file_of, noise
from PIL import Image

from schemas.codecs import ImageRejected, decode_image
from schemas.failures import Reason

RED, WHITE = (255, 0, 0), (255, 255, 255)


def decode(data: bytes, *, max_pixels: int = 1_000_000, allow_animated: bool = False) -> Image.Image:
    return decode_image(data, max_pixels=max_pixels, min_side_px=16, allow_animated=allow_animated)


def reason_of(data: bytes, **limits: int) -> Reason:
    with pytest.raises(ImageRejected) as caught:
        decode(data, **limits)
    return caught.value.reason


def red(width: int = 32, height: int = 20) -> Image.Image:
    return Image.new("RGB", (width, height), RED)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))


def gif_header(screen: tuple[int, int], frame: tuple[int, int]) -> bytes:
    return (
        b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6)
        + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x44\x01\x00;"
    )  # fmt: skip


def webp_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("<I", len(body)) + body

    frame = file_of(red(16, 16), "WEBP", lossless=True)[12:]
    place = bytes(6) + (15).to_bytes(3, "little") * 2 + bytes(4)
    canvas = bytes([2, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = chunk(b"VP8X", canvas) + chunk(b"ANIM", bytes(6)) + chunk(b"ANMF", place + frame)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


COMMON = ("PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG")
OTHERS = {"AVIF": "avif", "JPEG2000": "jpeg2000", "PPM": "pnm", "TGA": "tga", "PCX": "pcx", "SGI": "sgi", "QOI": "qoi"}
WITH_BLUE = {"save_all": True, "append_images": [Image.new("RGB", (32, 20), "blue")]}  # a second frame or page
FILES = {  # of a red picture, or of several of which it is the first; and the name of their format
    **{kind: (file_of(red(), kind), kind.lower()) for kind in COMMON},
    **{kind: (file_of(red(), kind), name) for kind, name in OTHERS.items()},
    "CMYK": (file_of(Image.new("CMYK", (32, 20), (0, 255, 255, 0)), "JPEG"), "jpeg"),
    "pages, which are no animation": (file_of(red(), "TIFF", **WITH_BLUE), "tiff"),
    "a JPEG of several pictures": (file_of(red(), "MPO", **WITH_BLUE), "jpeg"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_its_pixels(name: str) -> None:
    data, form = FILES[name]
    image = decode(data)
    assert (image.mode, image.size, image.format) == ("RGB", (32, 20), form)
    assert np.abs(np.asarray(image).astype(int) - RED).max() <= 3


@pytest.mark.parametrize("kind", OTHERS)
def test_the_other_formats_are_bounded_by_pixels_and_refuse_cuts(kind: str) -> None:
    data = file_of(noise(64, 64), kind)
    assert reason_of(data, max_pixels=64 * 64 - 1) == Reason.TOO_MANY_PIXELS
    cut = data[: len(data) // 3]
    assert reason_of(cut) in ({Reason.NOT_AN_IMAGE} if kind == "TGA" else {Reason.CORRUPT_IMAGE})


def test_formats_decoded_in_python_are_kept_small() -> None:
    text = b"P3 200 200 255 " + b"1 2 3 " * 40_000
    assert decode(text, max_pixels=2_000_000).size == (200, 200)
    assert reason_of(text, max_pixels=1_999_999) == Reason.TOO_MANY_PIXELS


def with_scans(data: bytes, scans: int) -> bytes:
    """Return a progressive JPEG with its last scan repeated: each is decoded again over all of the picture."""
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * scans + data[-2:]


def test_a_jpeg_of_many_scans_is_refused_by_their_number() -> None:
    data = file_of(red(64, 64), progressive=True, kind="JPEG")
    scans = data.count(b"\xff\xda")
    assert scans > 5 and decode(data).size == (64, 64)
    assert decode(with_scans(data, 50)).size == (64, 64)  # a small picture may have many
    assert reason_of(with_scans(data, 4000)) == Reason.TOO_MANY_PIXELS
    assert reason_of(data, max_pixels=64 * 64 * scans // 16 - 1) == Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.NOT_AN_IMAGE),
        (bytes(5000), Reason.NOT_AN_IMAGE),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", Reason.NOT_AN_IMAGE),
        (b"<!DOCTYPE html><html></html>", Reason.NOT_AN_IMAGE),
        (b"RIFF\0\0\0\0WAVEfmt ", Reason.NOT_AN_IMAGE),
        (b"8BPS\0\1" + bytes(20), Reason.CORRUPT_IMAGE),
        (b"\0\0\0\x1cftypavif" + bytes(20), Reason.CORRUPT_IMAGE),
        (b"\0\0\0\x1cftypheic" + bytes(20), Reason.UNSUPPORTED_FORMAT),
        (b"\xff\xd8\xff", Reason.CORRUPT_IMAGE),
        (b"\x89PNG\r\n\x1a\n", Reason.CORRUPT_IMAGE),
        (b"GIF89a", Reason.CORRUPT_IMAGE),
        (file_of(red(15, 400)), Reason.TOO_SMALL),
        (file_of(Image.new("F", (20, 20)), "TIFF"), Reason.UNSUPPORTED_FORMAT),
    ],
)
def test_what_is_no_usable_picture_says_why(data: bytes, reason: Reason) -> None:
    assert reason_of(data) == reason


@pytest.mark.parametrize("kind", COMMON)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_corrupt(kind: str, share: float) -> None:
    data = file_of(noise(64, 64), kind)
    assert reason_of(data[: int(len(data) * share)]) == Reason.CORRUPT_IMAGE


@pytest.mark.parametrize(
    "data",
    [
        png_header(60_000, 60_000),
        gif_header((65_535, 65_535), (10, 10)),
        gif_header((20, 20), (65_535, 65_535)),
        gif_header((20, 20), (10_000, 9_500)),  # where Pillow itself only warns
        webp_header(16_383, 16_383),
        file_of(Image.new("1", (4000, 4000)), "TIFF", compression="group4"),
    ],
    ids=["png", "gif screen", "gif frame", "gif frame below Pillow's limit", "webp", "tiff"],
)
def test_a_pixel_bomb_is_refused_by_its_header(data: bytes) -> None:
    assert len(data) < 1000
    assert reason_of(data) == Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_refused_or_shows_its_first_frame(kind: str) -> None:
    data = file_of(red(), kind, **WITH_BLUE, duration=100)
    assert reason_of(data) == Reason.ANIMATED_IMAGE
    assert np.abs(np.asarray(decode(data, allow_animated=True)).astype(int) - RED).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_orientation_is_applied(kind: str, orientation: int) -> None:
    upright = np.zeros((24, 48, 3), np.uint8)
    upright[:12, :24], upright[:12, 24:], upright[12:, :24] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    turns = {  # how the camera's sensor saw it, for each value of the tag (EXIF 2.3, table 4)
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.swapaxes(0, 1), 6: np.rot90(upright),
        7: np.rot90(upright.swapaxes(0, 1), 2), 8: np.rot90(upright, -1),
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    stored = Image.fromarray(np.ascontiguousarray(turns[orientation]))
    found = np.asarray(decode(file_of(stored, kind, exif=exif, **options))).astype(int)
    assert found.shape == upright.shape
    assert np.abs(found - upright).max() <= 3


PALETTE = red(20, 20).quantize(2)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (file_of(Image.new("RGBA", (20, 20), (255, 0, 0, 128))), (255, 127, 127)),
        (file_of(Image.new("RGBA", (20, 20), (0, 0, 0, 0))), WHITE),
        (file_of(PALETTE, transparency=PALETTE.getpixel((0, 0))), WHITE),
        (file_of(red(20, 20), transparency=RED), WHITE),
    ],
    ids=["half", "all", "a colour of a palette", "a colour"],
)
def test_transparency_is_shown_on_white(data: bytes, shown: tuple[int, int, int]) -> None:
    assert decode(data).getpixel((3, 3)) == shown


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
@pytest.mark.parametrize(("level", "background"), [(0, 255), (100, 255), (240, 0), (255, 0)])
def test_what_would_not_be_seen_on_white_is_shown_on_black(mode: str, level: int, background: int) -> None:
    shape = Image.new("L", (40, 40), 0)
    shape.paste(255, (10, 10, 30, 30))
    picture = Image.new("RGBA", shape.size, (level, level, level, 0))
    picture.putalpha(shape)
    shown = decode(file_of(picture if mode == "RGBA" else picture.convert(mode)))
    assert shown.getpixel((0, 0)) == (background,) * 3
    assert shown.getpixel((20, 20)) == (level,) * 3


@pytest.mark.parametrize("alpha", [0, 255])
def test_an_even_picture_is_even_on_white(alpha: int) -> None:
    assert decode(file_of(Image.new("RGBA", (20, 20), (255, 255, 255, alpha)))).getextrema() == ((255, 255),) * 3


def test_16_bit_grey_is_scaled() -> None:
    levels = np.linspace(0, 65535, 400).round().astype(np.uint16).reshape(20, 20)
    grey = np.asarray(decode(file_of(Image.fromarray(levels))))[..., 0]
    np.testing.assert_array_equal(grey, np.round(levels / 257).astype(np.uint8))


@pytest.mark.parametrize(("kind", "most"), [("PNG", 200), ("WEBP", 100), ("JPEG", 200)])
def test_the_pixel_limit_is_inclusive_and_of_a_webp_half_as_high(kind: str, most: int) -> None:
    just, over = (file_of(red(width, 20), kind) for width in (most, most + 1))
    assert decode(just, max_pixels=4_000).size == (most, 20)
    with pytest.raises(ImageRejected, match=f"{most + 1} x 20 px, at most {most * 20} allowed") as caught:
        decode(over, max_pixels=4_000)
    assert caught.value.reason is Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize(("size", "fits"), [(2 * 2**20, True), (40 * 2**20, False)])
def test_a_large_colour_profile_costs_no_picture_and_a_bomb_is_refused(size: int, fits: bool) -> None:
    data = file_of(red(), icc_profile=bytes(size))
    if fits:
        assert decode(data).size == (32, 20)
    else:
        assert reason_of(data) is Reason.CORRUPT_IMAGE
