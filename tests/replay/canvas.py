"""Draws stamps on painted backgrounds, so that one stamp gives many different pictures.

Belongs here: backgrounds, placing, scale, mirroring, rotation, and encoding the result. Every choice comes
from the random generator passed in, so that a picture depends on its seed alone. Which stamps meet in
a picture is `stamp_albums.py`.
"""

import io
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

SHORT_SIDE_PX = 200
LONG_SIDES_PX = (200, 216, 240)
JPEG_QUALITIES = (70, 72, 74)
MIN_CONTRAST = 60.0

Colour = tuple[int, int, int]
Plane = NDArray[np.float64]


def draw_canvas(stamps: Sequence[Image.Image], rng: random.Random) -> Image.Image:
    """An RGB picture of one or two stamps on a background they stand out from."""
    long_side = rng.choice(LONG_SIDES_PX)
    upright = rng.random() < 0.4
    size = (SHORT_SIDE_PX, long_side) if upright else (long_side, SHORT_SIDE_PX)
    canvas = background(size, stamp_brightness(stamps), rng)
    cells = split_cells(size, len(stamps), side_by_side=not upright)
    for stamp, (left, top, width, height) in zip(stamps, cells, strict=True):
        figure = pose(stamp, width, height, rng)
        x = left + rng.randint(0, max(0, width - figure.width))
        y = top + rng.randint(0, max(0, height - figure.height))
        canvas.paste(figure, (x, y), figure)
    return canvas


def split_cells(size: tuple[int, int], count: int, *, side_by_side: bool) -> list[tuple[int, int, int, int]]:
    """`count` equal boxes (left, top, width, height) that fill the canvas."""
    width, height = size
    if side_by_side:
        step = width // count
        return [(index * step, 0, step, height) for index in range(count)]
    step = height // count
    return [(0, index * step, width, step) for index in range(count)]


def pose(stamp: Image.Image, width: int, height: int, rng: random.Random) -> Image.Image:
    """The stamp scaled into the box, perhaps mirrored, perhaps turned a little."""
    figure = ImageOps.mirror(stamp) if rng.random() < 0.5 else stamp
    if rng.random() < 0.5:
        turn = rng.uniform(-20, 20)
        figure = figure.rotate(turn, Image.Resampling.BICUBIC, expand=True)
    scale = rng.uniform(0.68, 0.98) * min(width / figure.width, height / figure.height)
    wanted = (max(1, round(figure.width * scale)), max(1, round(figure.height * scale)))
    return figure.resize(wanted, Image.Resampling.LANCZOS)


def stamp_brightness(stamps: Sequence[Image.Image]) -> float:
    """Mean brightness of the opaque parts, 0 to 255."""
    means = []
    for stamp in stamps:
        pixels = np.asarray(stamp.resize((32, 32)), dtype=np.float64)
        weight = pixels[..., 3].sum() or 1.0
        means.append(float((pixels[..., :3].mean(axis=2) * pixels[..., 3]).sum() / weight))
    return sum(means) / len(means)


def contrasting_colour(brightness: float, rng: random.Random) -> Colour:
    """A colour whose brightness differs from `brightness` by at least `MIN_CONTRAST`."""
    while True:
        colour = (rng.randrange(256), rng.randrange(256), rng.randrange(256))
        if abs(sum(colour) / 3 - brightness) >= MIN_CONTRAST:
            return colour


def background(size: tuple[int, int], brightness: float, rng: random.Random) -> Image.Image:
    """Two contrasting colours mixed by a randomly chosen pattern."""
    first, second = contrasting_colour(brightness, rng), contrasting_colour(brightness, rng)
    width, height = size
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    share = rng.choice(PATTERNS)(x / width, y / height, rng)[..., None]
    mixed = np.asarray(first) * (1 - share) + np.asarray(second) * share
    image = Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))
    return image.filter(ImageFilter.GaussianBlur(1.2))


def gradient(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """From one colour to the other along a random direction."""
    angle = rng.uniform(0, 2 * math.pi)
    along = x * math.cos(angle) + y * math.sin(angle)
    return np.asarray((along - along.min()) / (along.max() - along.min()))


def halo(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """Around a random centre."""
    radius = rng.uniform(0.4, 1.0)
    distance = np.hypot(x - rng.uniform(0.1, 0.9), y - rng.uniform(0.1, 0.9))
    return np.asarray(np.clip(distance / radius, 0, 1))


def horizon(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """Ground and sky, with hills."""
    level = rng.uniform(0.35, 0.8)
    hills = rng.uniform(0, 0.15) * np.sin(x * rng.uniform(2, 9) + rng.uniform(0, 6))
    return np.where(y > level + hills, 1.0, 0.25 * y)


def stripes(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """Soft bands in a random direction."""
    angle, bands = rng.uniform(0, math.pi), rng.uniform(6, 20)
    return np.asarray(0.5 + 0.5 * np.sin(bands * (x * math.cos(angle) + y * math.sin(angle))))


def blobs(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """A few soft spots."""
    total = np.zeros_like(x)
    for _ in range(rng.randint(3, 6)):
        distance = np.hypot(x - rng.random(), y - rng.random())
        total += np.exp(-((distance / rng.uniform(0.1, 0.3)) ** 2))
    return np.asarray(np.clip(total, 0, 1))


def tiles(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """A board of large squares."""
    columns, rows = rng.randint(2, 5), rng.randint(2, 5)
    return np.asarray((np.floor(x * columns) + np.floor(y * rows)) % 2)


def plain(x: Plane, y: Plane, rng: random.Random) -> Plane:
    """Nearly one colour."""
    return gradient(x, y, rng) * 0.15


PATTERNS: tuple[Callable[[Plane, Plane, random.Random], Plane], ...] = (
    gradient,
    halo,
    horizon,
    stripes,
    blobs,
    tiles,
    plain,
)


def encode(image: Image.Image, *, extension: str, quality: int = JPEG_QUALITIES[0]) -> bytes:
    """The picture as a JPEG, PNG or GIF file; PNG and GIF with a palette of 64 colours."""
    stream = io.BytesIO()
    if extension == "jpg":
        image.save(stream, "JPEG", quality=quality, optimize=True, progressive=True)
    else:
        palette = image.quantize(64, dither=Image.Dither.NONE)
        palette.save(stream, "PNG" if extension == "png" else "GIF", optimize=True)
    return stream.getvalue()
