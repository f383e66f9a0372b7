"""Pictures that tests draw, and the bytes of their files."""

import io

import numpy as np
from PIL import Image


def file_of(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """Return a picture as a file of a format."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """Return a picture whose every pixel is another colour."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """Return a picture of colours that pass into each other: 9 x 6 of them, enlarged."""
    return noise(9, 6, seed).resize((width, height), Image.Resampling.BICUBIC)
