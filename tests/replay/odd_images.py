"""Image files that decoders meet once in a while, as bytes.

Belongs here: unusual but valid forms (CMYK, 16 bits, palette with transparency, EXIF orientation, animation) and
hostile ones (cut short, a page in an image's clothes, a decompression bomb). What the server does with
them is `behaviours.py`; which album holds them is `hostile_posts.py`.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageDraw

BOMB_SIDE_PX = 20_000
PLACEHOLDER_SIZE = (161, 81)
EXIF_ORIENTATION = 0x0112
ROTATE_90_CLOCKWISE = 6


def save(image: Image.Image, form: str, **options: object) -> bytes:
    """The encoded picture."""
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def cmyk_jpeg(image: Image.Image) -> bytes:
    """A JPEG of four inks."""
    return save(image.convert("CMYK"), "JPEG", quality=75)


def rotated_jpeg(image: Image.Image) -> bytes:
    """A JPEG stored on its side, with the EXIF note that says so."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = ROTATE_90_CLOCKWISE
    return save(image.transpose(Image.Transpose.ROTATE_90), "JPEG", quality=75, exif=exif.tobytes())


def deep_png(image: Image.Image) -> bytes:
    """A grey PNG of 16 bits a sample."""
    grey = np.asarray(image.resize((128, 128)).convert("L"), dtype=np.uint16) // 8 * 8
    return save(Image.fromarray(grey * 257), "PNG", optimize=True)


def transparent_palette_png(image: Image.Image) -> bytes:
    """A palette PNG whose most used colour is transparent."""
    palette = image.quantize(48, dither=Image.Dither.NONE)
    histogram = palette.histogram()
    return save(palette, "PNG", optimize=True, transparency=histogram.index(max(histogram)))


def animated_gif(frames: list[Image.Image]) -> bytes:
    """An animation that repeats for ever."""
    small = [frame.resize((120, 120)).quantize(32, dither=Image.Dither.NONE) for frame in frames]
    return save(small[0], "GIF", save_all=True, append_images=small[1:], duration=400, loop=0)


def cut_short(data: bytes) -> bytes:
    """The first half of a file."""
    return data[: len(data) // 2]


def page_as_image() -> bytes:
    """An HTML page."""
    return b"<!DOCTYPE html><html><head><title>imgur</title></head><body>Over capacity</body></html>"


def flat_jpeg(side: int = 200) -> bytes:
    """A picture of one colour."""
    return save(Image.new("RGB", (side, side), (96, 128, 160)), "JPEG", quality=75)


def bomb_png(side: int = BOMB_SIDE_PX) -> bytes:
    """A one-colour PNG of `side` x `side` pixels in a few thousand bytes.

    Written row by row, so that making it takes little memory. Layout: PNG specification, sections 11.2.2
    (IHDR: one bit, grey) and 11.2.4 (IDAT).
    """
    packer = zlib.compressobj(9)
    row = bytes(1 + (side + 7) // 8)
    body = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    """One PNG chunk (PNG specification, section 5.3)."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def placeholder_png() -> bytes:
    """What the host shows for a deleted image."""
    image = Image.new("RGB", PLACEHOLDER_SIZE, (34, 34, 34))
    drawing = ImageDraw.Draw(image)
    drawing.text((10, 22), "The image you are", fill="white")
    drawing.text((10, 40), "requesting is gone.", fill="white")
    return save(image.quantize(8), "PNG", optimize=True)
