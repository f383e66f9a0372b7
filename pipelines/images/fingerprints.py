"""Perceptual fingerprints by name: pictures that look alike have codes that differ in few bits.

To add one: a member of `pipelines.config.FingerprintName` and a function here. A fingerprint's length is a multiple of
64 bits, and it is computed on the decoded original, upright and in full size (as Hessel 2019's tool did), not on the
copy a data set keeps. A name stands for one computation for ever: a changed one gets a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.settings import FingerprintName

MEAN_RADIUS = 3  # a 7 x 7 mean filter
GRID = 32
FREQUENCIES = slice(1, 9)  # the 8 lowest, the constant one left out


def fingerprint_image(image: Image.Image, name: FingerprintName) -> str:
    """Return the fingerprint of an RGB picture in lower-case hexadecimal."""
    return _FINGERPRINTS[name](image)


def phash(image: Image.Image, *, side: int = 8) -> str:
    """Return the DCT hash of `imagehash.phash`: grey, 4 side x 4 side, DCT, the lowest over their median.

    Bit for bit: of a picture with a symmetry, frequencies are 0 but for rounding, so the transform must be the same.
    """
    from scipy import fftpack

    grid = np.asarray(image.convert("L").resize((4 * side, 4 * side), Image.Resampling.LANCZOS))
    spectrum = fftpack.dct(fftpack.dct(grid, axis=0), axis=1)[:side, :side]
    ordered = np.sort(spectrum, axis=None)
    median = (ordered[side * side // 2 - 1] + ordered[side * side // 2]) / 2  # numpy's own takes twice the transform
    return np.packbits(spectrum > median).tobytes().hex()


def dhash(image: Image.Image, *, side: int = 8) -> str:
    """Return the gradient hash of `imagehash.dhash`: which pixel of a (side + 1) x side grid is above its left one."""
    import imagehash

    return str(imagehash.dhash(image, hash_size=side))


def whash(image: Image.Image, *, side: int = 8) -> str:
    """Return the Haar wavelet hash of `imagehash.whash`, computed at the picture's own scale.

    It holds about six float64 copies of a square with the largest power of two that the picture's shorter side allows.
    """
    import imagehash

    return str(imagehash.whash(image, hash_size=side))


def findimagedupes(image: Image.Image) -> str:
    """Return the 64-bit code of pHash's `ph_dct_imagehash`, which opennota's findimagedupes compares (SPEC 3).

    Grey, 7 x 7 mean filter (edges repeated), 32 x 32, orthonormal DCT, frequencies 1..8 each way, each against their
    median. As in pHash the shrinking takes the nearest filtered pixel, and the first frequency is the lowest bit.
    """
    spectrum = low_frequencies(smooth_grid(np.asarray(image.convert("L"))))
    octets = np.packbits(spectrum > np.median(spectrum), bitorder="little")
    return octets[::-1].tobytes().hex()


def smooth_grid(grey: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return 32 x 32 pixels of the 7 x 7 mean-filtered picture; only the means that are kept are computed."""
    rows, columns = (_neighbourhoods(size) for size in grey.shape)
    near = grey[rows[:, None], columns[None, :]].astype(np.float64)
    width = 2 * MEAN_RADIUS + 1
    means: npt.NDArray[np.float64] = near.reshape(GRID, width, GRID, width).mean(axis=(1, 3))
    return means


def low_frequencies(grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return frequencies 1..8 x 1..8 of a 32 x 32 grid's orthonormal DCT-II.

    C[u, x] = sqrt(2 / 32) cos(pi u (2 x + 1) / 64) for u > 0.
    """
    places = 2 * np.arange(GRID) + 1
    angles = np.pi / (2 * GRID) * np.outer(np.arange(GRID)[FREQUENCIES], places)
    basis = np.sqrt(2 / GRID) * np.cos(angles)
    spectrum: npt.NDArray[np.float64] = basis @ grid @ basis.T
    return spectrum


def _neighbourhoods(size: int) -> npt.NDArray[np.int64]:
    """Return for each of 32 places along a side of `size` pixels the 7 pixels around it, end to end."""
    centres = np.arange(GRID) * size // GRID
    around = centres[:, None] + np.arange(-MEAN_RADIUS, MEAN_RADIUS + 1)
    places: npt.NDArray[np.int64] = np.clip(around, 0, size - 1).reshape(-1)
    return places


_FINGERPRINTS: Mapping[FingerprintName, Callable[[Image.Image], str]] = {
    FingerprintName.PHASH: phash,
    FingerprintName.FINDIMAGEDUPES: findimagedupes,
    FingerprintName.DHASH: dhash,
    FingerprintName.WHASH: whash,
    FingerprintName.PHASH_256: partial(phash, side=16),
    FingerprintName.DHASH_256: partial(dhash, side=16),
    FingerprintName.WHASH_256: partial(whash, side=16),
}
