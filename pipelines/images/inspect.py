"""From the bytes of a file to everything known of the picture: hash, size, fingerprint, flatness, metadata, copy.

The images stage calls `inspect_image` once per fetched file; fetching is in `pipelines.web`.

The copy a data set keeps is a JPEG whose shorter side has 256 px. Its bytes follow from the pixels alone, on every
processor, since Pillow's reduction and the resizer's convolution both reckon in whole numbers. Copies that other code
made stay apart: the code is in the name of their folder (`copy_packs`).

Perceptual fingerprints go by name: pictures that look alike have codes that differ in few bits. To add one: a member of
`pipelines.settings.FingerprintName` and a function here. A fingerprint's length is a multiple of 64 bits, and it is
computed on the decoded original, upright and in full size (as Hessel 2019's tool did), not on the copy. A name stands
for one computation for ever: a changed one gets a new name.

Pictures never travel between workers: their copies are in packs (`<lake>/images/<method>/`), and a `PackedImage` says
in which row. An image without pixels has the address `row:<n>`: its vector is a row of a `features.npy` that the user
already has, looked up instead of extracted.
"""

import hashlib
import importlib.metadata
import io
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import cast

import numpy as np
import numpy.typing as npt
import threadpoolctl
from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer
from PIL import Image as Pixels

from pipelines.images.metadata import read_metadata
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import ImageRejected, decode_image, picture_libraries
from schemas.documents import COPY_SCHEMA, SHORTER_SIDE_PX, Image
from schemas.failures import Reason
from schemas.features import Storage, storable
from schemas.lake import Lake
from schemas.messages import ConfigError, NotFoundError
from schemas.tables import travels
from schemas.versions import digest_within
from schemas.versions import fingerprint as digest_of

MAX_ASPECT = 8  # of a copy: a longer picture loses its ends, so that a 16 x 60000 strip stays small
FINE_SCALE = 3  # of a much larger picture, pixels are averaged in whole blocks until it is this many times as large
FLAT_LEVELS = 2  # a channel may vary by this many of 256 levels: what JPEG leaves of one colour
PROBES = 8  # pixels looked at first, each way
MEAN_RADIUS = 3  # a 7 x 7 mean filter
GRID = 32
FREQUENCIES = slice(1, 9)  # the 8 lowest, the constant one left out
BLOCK = 512  # images of one pack that a worker reads at once
ROWS_PER_GROUP = 32  # of some 15 KB each: one copy is read without many others, and footers stay small
_DIGITS = 16
_CODE = ("pipelines.images.", "schemas.codecs.", "schemas.metadata.")  # makes a copy of a picture


def inspect_image(data: bytes, *, config: ImagesConfig, fingerprint: FingerprintName) -> tuple[Image, bytes]:
    """Return what is known of a picture, and its copy (JPEG); the same bytes always give the same.

    Args:
        data: the whole file as it was fetched; its SHA-256 is the picture's identity.
        config: what is acceptable.
        fingerprint: which perceptual hash, computed on the decoded original.

    Raises:
        schemas.codecs.ImageRejected: the bytes are no acceptable picture.
    """
    pixels = decode_image(
        data, max_pixels=config.max_pixels, min_side_px=config.min_side_px, allow_animated=config.allow_animated
    )
    metadata, rights = read_metadata(data)
    image = Image(
        hash=hashlib.sha256(data).hexdigest(),
        format=pixels.format,
        width=pixels.width,
        height=pixels.height,
        original_bytes=len(data),
        fingerprint=fingerprint_image(pixels, fingerprint),
        is_flat=is_flat(pixels),
        metadata=metadata,
        rights=rights,
    )
    return image, encode_jpeg(pixels, quality=config.jpeg_quality)


def is_flat(pixels: Pixels.Image) -> bool:
    """Whether an RGB picture is one colour all over: no channel's extremes are more than FLAT_LEVELS apart."""
    some = pixels.resize((PROBES, PROBES), Pixels.Resampling.NEAREST)  # most pictures need no look at every pixel
    return _is_even(some) and _is_even(pixels)


def _is_even(pixels: Pixels.Image) -> bool:
    extremes = cast("tuple[tuple[int, int], ...]", pixels.getextrema())
    return all(highest - lowest <= FLAT_LEVELS for lowest, highest in extremes)


def encode_jpeg(image: Pixels.Image, *, shorter_side_px: int = SHORTER_SIDE_PX, quality: int = 90) -> bytes:
    """Return an RGB picture as JPEG, its shorter side exactly `shorter_side_px`; equal pixels give equal bytes.

    A smaller picture is enlarged, so that a centre crop of any smaller size always exists. Of one more than MAX_ASPECT
    times as long as wide, the middle is kept (a centre crop shows the same pixels either way). The filter is
    the antialiased bilinear one of the transform that ImageNet's CNNs are evaluated under, `Resize(256)`. Lanczos takes
    more than twice as long; optimised Huffman tables, twice as long as the rest of the encoding to save 5% of it.
    """
    width, height = image.size
    shorter = min(width, height)
    kept_width, kept_height = min(width, MAX_ASPECT * shorter), min(height, MAX_ASPECT * shorter)
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    scale = shorter_side_px / shorter
    size = (round(kept_width * scale), round(kept_height * scale))
    small = _resize(image, (left, top, left + kept_width, top + kept_height), size)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=quality, subsampling="4:2:0", comment=b"")  # not the original's
    return stream.getvalue()


def _resize(image: Pixels.Image, box: tuple[int, int, int, int], size: tuple[int, int]) -> Pixels.Image:
    """Return a part of an RGB picture in another size, each pixel the triangle-weighted mean of those below it.

    The resizer takes a fifth of the time of Pillow's `resize`.
    """
    crop = CropBox(box[0], box[1], box[2] - box[0], box[3] - box[1])
    factors = (max(1, crop.width // (FINE_SCALE * size[0])), max(1, crop.height // (FINE_SCALE * size[1])))
    if factors != (1, 1):
        image = image.reduce(factors, box=box)
        crop = CropBox(0, 0, crop.width / factors[0], crop.height / factors[1])  # of the last block, what is inside
    resized = Pixels.new("RGB", size)
    bilinear = ResizeAlg.convolution(FilterType.bilinear)
    Resizer().resize_pil(image, resized, ResizeOptions(resize_alg=bilinear, crop_box=crop))
    return resized


@cache
def fingerprint_libraries(name: FingerprintName) -> dict[str, str]:
    """Return what a fingerprint depends on beside `picture_libraries`: versions, and the machine where that matters."""
    if name is FingerprintName.FINDIMAGEDUPES:
        return {"blas": blas_kind()}
    scipy = importlib.metadata.version("scipy")
    return {"scipy": scipy, "machine": platform.machine()}  # whose rounding decides bits of a picture with a symmetry


@cache
def blas_kind() -> str:
    """Return which kernels of linear algebra numpy chose for this processor: they decide the last bits of a product."""
    loaded = threadpoolctl.threadpool_info()
    return ", ".join(sorted({each.get("architecture", "") for each in loaded if "numpy" in each["filepath"]}))


def fingerprint_image(image: Pixels.Image, name: FingerprintName) -> str:
    """Return the fingerprint of an RGB picture in lower-case hexadecimal."""
    return _FINGERPRINTS[name](image)


def phash(image: Pixels.Image, *, side: int = 8) -> str:
    """Return the DCT hash of `imagehash.phash`: grey, 4 side x 4 side, DCT, the lowest over their median.

    Bit for bit: of a picture with a symmetry, frequencies are 0 but for rounding, so the transform must be the same.
    """
    from scipy import fftpack

    grid = np.asarray(image.convert("L").resize((4 * side, 4 * side), Pixels.Resampling.LANCZOS))
    spectrum = fftpack.dct(fftpack.dct(grid, axis=0), axis=1)[:side, :side]
    ordered = np.sort(spectrum, axis=None)
    median = (ordered[side * side // 2 - 1] + ordered[side * side // 2]) / 2  # numpy's own takes twice the transform
    return np.packbits(spectrum > median).tobytes().hex()


def findimagedupes(image: Pixels.Image) -> str:
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


_FINGERPRINTS: Mapping[FingerprintName, Callable[[Pixels.Image], str]] = {
    FingerprintName.PHASH: phash,
    FingerprintName.FINDIMAGEDUPES: findimagedupes,
    FingerprintName.PHASH_256: partial(phash, side=16),
}


@travels
@dataclass(frozen=True, slots=True)
class PackedImage:
    """What is known of an image.

    Attributes:
        copy: where its copy is; None: it has no pixels (a row of a feature array).
        retrieved: when it was fetched, ISO 8601 in UTC; None: it was not.
        landed: address that gave it, where its own leads to another.
    """

    image: Image
    copy: PackRef | None = None
    retrieved: str | None = None
    landed: str | None = None


def block_of(packed: PackedImage) -> tuple[str, int]:
    """Return where the copy of an image is, as far as copies are read together: its pack, and a block of rows there."""
    return ("", 0) if packed.copy is None else (packed.copy.pack, packed.copy.row // BLOCK)


def copy_packs(lake: Lake, config: ImagesConfig, fingerprint: FingerprintName) -> PackFolder:
    """Return the packs of the copies that these settings give.

    The folder's name follows from all that a copy depends on: what is accepted, which fingerprint is computed, the
    libraries, and the code. So what is found there is what inspecting the picture again would give.
    """
    depends_on = {
        "config": config.of_copies,
        "fingerprint": str(fingerprint),
        "libraries": picture_libraries() | fingerprint_libraries(fingerprint),
        "code": copy_code(),
    }
    return PackFolder(lake.images.child(digest_of(depends_on)[:_DIGITS]), COPY_SCHEMA, "hash", ROWS_PER_GROUP)


def copy_code() -> str:
    """Return the SHA-256 (hex) of the code that makes a copy of a picture, and reads what else its file says."""
    return digest_within(__name__, *_CODE)


@lru_cache(maxsize=4)
def given_array(path: str) -> npt.NDArray[np.floating]:
    """Return this process's one view, mapped into memory, of an `.npy` file of rows x dimensions real numbers.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no such array.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: there is no such feature array") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path}: expected an .npy array of numbers, found something else") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        found = f"{array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ConfigError(f"{path}: expected rows x dimensions of real numbers, found {found}")
    return array


def given_vector(row: int, path: str) -> npt.NDArray[np.floating]:
    """Return the d numbers of a row.

    Raises:
        ImageRejected: there is no such row, or a value is not finite as float16.
    """
    array = given_array(path)
    if row >= len(array):
        raise ImageRejected(Reason.FEATURE_MISSING, f"row {row}: the feature array has {len(array)} rows")
    vector: npt.NDArray[np.floating] = array[row]
    if not storable(vector[None], Storage.FLOAT16)[0]:
        raise ImageRejected(Reason.FEATURE_MISSING, f"row {row}: a value is not finite, or beyond float16's 65504")
    return vector
