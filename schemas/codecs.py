"""What bytes mean, for both halves: pictures, and the float16 vectors in Arrow columns.

`decode_image` is the one way an untrusted file becomes pixels: limits are checked on its header, before anything is
decoded, and every way it can fail is an `ImageRejected` with a reason of the closed list. `encode_jpeg` makes the copy
a data set keeps. The vector functions move whole matrices between numpy and Arrow without touching single values.
Fetching, hashing and fingerprints are elsewhere (`pipelines`).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import (
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from schemas.errors import IntegrityError
from schemas.failures import Reason
from schemas.images import SHORTER_SIDE_PX
from schemas.tables import vector_type

STRIP_PIXELS = 1_000_000  # converted at once
KEPT_BLOCKS = 4  # of Pillow's memory, of 16 MB at most: the next picture's, where the system would give new pages
MAX_ASPECT = 8  # of a stored copy: a longer picture loses its ends, so that a 16 x 60000 strip stays small

Vectors = npt.NDArray[np.float16]  # N x d
Offsets = npt.NDArray[np.int64]  # N + 1, from 0: rows offsets[i] : offsets[i + 1] belong to list i

# What Pillow's decoders raise for bytes that are not what they say: header and chunk parsing, then pixels.
_BROKEN = (
    OSError,  # includes UnidentifiedImageError and truncation
    SyntaxError,
    ValueError,
    struct.error,
    EOFError,
    zlib.error,
    OverflowError,  # these two: TIFF tags of the wrong kind, found by fuzzing
    TypeError,
    UserWarning,  # odd metadata, where warnings are errors
)
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)


class ImageRejected(Exception):  # noqa: N818 - an outcome with a reason, not a fault of the program
    """Bytes that are no usable picture."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class _Format:
    """A format that is decoded: how its files start, and Pillow's reader of exactly that format.

    Attributes:
        weight: how many pixels one of it counts for: decoding holds 16 to 17 bytes of each where others hold 4 to 12.
    """

    name: str
    starts: tuple[bytes, ...]
    open: Callable[[io.BytesIO], ImageFile.ImageFile]
    may_move: bool = False
    weight: int = 1


_FORMATS = (
    # The JPEG reader itself, not Pillow's factory: a phone's multi-picture file (MPO) is its first picture.
    _Format("jpeg", (b"\xff\xd8\xff",), JpegImagePlugin.JpegImageFile),
    _Format("png", (b"\x89PNG\r\n\x1a\n",), PngImagePlugin.PngImageFile, may_move=True),
    _Format("gif", (b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile, may_move=True),
    _Format("webp", (b"RIFF",), WebPImagePlugin.WebPImageFile, may_move=True, weight=2),
    _Format("bmp", (b"BM",), BmpImagePlugin.BmpImageFile),
    _Format("tiff", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImagePlugin.TiffImageFile),
)

# Pictures of other formats, told by their first bytes alone: no further parser ever sees untrusted data.
_OTHER_PICTURES = (
    b"\0\0\0\x0cjP  \r\n\x87\n",  # JPEG 2000
    b"\xff\x4f\xff\x51",  # JPEG 2000 codestream
    b"\0\0\0\x0cJXL \r\n\x87\n",
    b"\xff\x0a",  # JPEG XL codestream
    b"\0\0\x01\0",  # icon
    b"8BPS",  # Photoshop
    b"%PDF",
    b"%!PS",
    b"DDS ",
    b"gimp xcf",
    b"qoif",
    b"v/1\x01",  # OpenEXR
    b"IIRO",  # Olympus raw
    b"FUJIFILMCCD-RAW",
)
_ISO_BRANDS = frozenset({b"avif", b"avis", b"heic", b"heix", b"hevc", b"heim", b"mif1", b"msf1", b"crx "})

_TURN = {  # EXIF orientation, 0x0112 -> what puts the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_image(data: bytes, *, max_pixels: int, min_side_px: int, allow_animated: bool) -> Image.Image:
    """Return the upright RGB pixels of a JPEG, PNG, GIF, WebP, BMP or TIFF file; `.format` names which (`jpeg` ...).

    Transparent parts are shown on white; 16-bit grey is scaled to 8 bits; of an allowed animation, and of a TIFF with
    several pages, the first picture counts. Colour profiles are not applied.

    Args:
        data: the whole file.
        max_pixels: width x height, as the header gives it: beyond it nothing is decoded. A WebP's pixels count double,
            since decoding one takes twice the memory.
        min_side_px: least shorter side, in pixels.
        allow_animated: whether the first frame of an animation (GIF, PNG, WebP) counts as an image.

    Raises:
        ImageRejected: with the reason, and what was expected and found.
    """
    kind = _sniff(data)
    _keep_memory()
    try:
        image = kind.open(io.BytesIO(data))
        _check_header(image, kind, max_pixels=max_pixels, min_side_px=min_side_px, allow_animated=allow_animated)
        image.load()
        turn = _TURN.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except _BOMB as error:
        raise ImageRejected(Reason.TOO_MANY_PIXELS, f"{kind.name}: {error}") from error
    except _BROKEN as error:
        raise ImageRejected(Reason.CORRUPT_IMAGE, f"{kind.name} of {len(data)} bytes: {error}") from error
    pixels = _to_rgb(image)
    upright = pixels if turn is None else pixels.transpose(turn)
    upright.format = kind.name
    return upright


def encode_jpeg(image: Image.Image, *, shorter_side_px: int = SHORTER_SIDE_PX, quality: int = 90) -> bytes:
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
    box = (left, top, left + kept_width, top + kept_height)
    small = image.resize(size, Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=quality, subsampling="4:2:0", comment=b"")  # not the original's
    return stream.getvalue()


def pack_vectors(matrix: npt.NDArray[np.floating]) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Return an N x d matrix as float16, and for each row whether it has only finite float16 values.

    A value beyond +-65504 overflows: its row is not valid, and must not be stored.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        packed = np.ascontiguousarray(matrix, dtype=np.float16)
    return packed, np.asarray(np.isfinite(packed).all(axis=1))


def vectors_to_arrow(matrix: Vectors) -> pa.FixedSizeListArray:
    """Return the rows of an N x d float16 matrix as a column of `vector_type(d)`; a contiguous matrix is not copied.

    Raises:
        TypeError: the matrix is not float16 (`pack_vectors` makes it so, and says which rows overflow).
    """
    if matrix.dtype != np.float16 or matrix.ndim != 2:
        raise TypeError(f"expected an N x d matrix of float16, found {matrix.ndim} axes of {matrix.dtype}")
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1), type=pa.float16())
    return pa.FixedSizeListArray.from_arrays(values, type=vector_type(matrix.shape[1]))


def arrow_to_vectors(column: pa.Array | pa.ChunkedArray) -> Vectors:
    """Return a column of `vector_type(d)` as an N x d float16 matrix, without copying where it is one chunk.

    The matrix may be read-only.

    Raises:
        IntegrityError: a vector or a value is null.
    """
    array = _one_chunk(column)
    values = array.flatten()
    if array.null_count or values.null_count:
        raise IntegrityError(f"expected vectors without nulls, found {array.null_count + values.null_count} nulls")
    flat: Vectors = values.to_numpy(zero_copy_only=True)
    return flat.reshape(len(array), array.type.list_size)


def ragged_to_arrow(matrix: Vectors, offsets: Offsets) -> pa.ListArray:
    """Return a column of lists of vectors: list `i` holds rows `offsets[i]:offsets[i + 1]` of an R x d matrix."""
    if offsets[0] != 0 or offsets[-1] != len(matrix) or (np.diff(offsets) < 0).any():
        raise ValueError(f"expected offsets that rise from 0 to {len(matrix)}, found {offsets[0]}..{offsets[-1]}")
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), vectors_to_arrow(matrix))


def arrow_to_ragged(column: pa.Array | pa.ChunkedArray) -> tuple[Vectors, Offsets]:
    """Return a column of lists of vectors as its R x d matrix and N + 1 offsets (see `ragged_to_arrow`).

    Raises:
        IntegrityError: a list, a vector or a value is null.
    """
    array = _one_chunk(column)
    if array.null_count:
        raise IntegrityError(f"expected lists of vectors without nulls, found {array.null_count} nulls")
    offsets = array.offsets.to_numpy().astype(np.int64)
    rows = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return arrow_to_vectors(rows), offsets - offsets[0]


@cache
def _keep_memory() -> None:
    """Let Pillow use its memory again, once in a process (its setting `PILLOW_BLOCKS_MAX`).

    Of 400 x 300 px it otherwise asks the system for 270 new pages a picture, which are a tenth of the work on it.
    """
    Image.core.set_blocks_max(KEPT_BLOCKS)  # type: ignore[attr-defined]


def _sniff(data: bytes) -> _Format:
    for kind in _FORMATS:
        if data.startswith(kind.starts) and (kind.name != "webp" or data[8:12] == b"WEBP"):
            return kind
    found = f"{len(data)} bytes that start with {data[:12]!r}"
    if data.startswith(_OTHER_PICTURES) or (data[4:8] == b"ftyp" and data[8:12] in _ISO_BRANDS):
        raise ImageRejected(Reason.UNSUPPORTED_FORMAT, f"expected jpeg, png, gif, webp, bmp or tiff, found {found}")
    raise ImageRejected(Reason.NOT_AN_IMAGE, f"expected an image, found {found}")


def _check_header(
    image: ImageFile.ImageFile, kind: _Format, *, max_pixels: int, min_side_px: int, allow_animated: bool
) -> None:
    width, height = image.size
    if width * height * kind.weight > max_pixels:
        limit = f"{max_pixels // kind.weight} allowed" + (f" of {kind.name}" if kind.weight > 1 else "")
        raise ImageRejected(Reason.TOO_MANY_PIXELS, f"{width} x {height} px, at most {limit}")
    if min(width, height) < min_side_px:
        raise ImageRejected(Reason.TOO_SMALL, f"{width} x {height} px, the shorter side must be {min_side_px}")
    if kind.may_move and not allow_animated and getattr(image, "is_animated", False):
        raise ImageRejected(Reason.ANIMATED_IMAGE, f"an animated {kind.name}")


def _to_rgb(image: Image.Image) -> Image.Image:
    """Return the pixels as RGB, transparent ones on white; beyond both pictures it holds a strip at a time."""
    if image.mode.startswith("I"):
        return _by_strips(image, _grey_from_16_bits, "L").convert("RGB")
    if image.mode not in ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"):
        raise ImageRejected(Reason.UNSUPPORTED_FORMAT, f"pixels of mode {image.mode}")
    if image.has_transparency_data:
        return _by_strips(image, _on_white, "RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image], mode: str) -> Image.Image:
    """Return a picture converted some rows at a time, where the conversion looks at single pixels alone."""
    width, height = image.size
    rows = max(1, STRIP_PIXELS // width)
    whole = Image.new(mode, image.size)
    for top in range(0, height, rows):
        whole.paste(convert(image.crop((0, top, width, min(top + rows, height)))), (0, top))
    return whole


def _on_white(image: Image.Image) -> Image.Image:
    shown = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")


def _grey_from_16_bits(image: Image.Image) -> Image.Image:
    """Return 16-bit grey as 8 bits: 65535 becomes 255."""
    levels = np.asarray(image).astype(np.int64)
    if levels.min() < 0 or levels.max() > 65535:
        raise ImageRejected(Reason.UNSUPPORTED_FORMAT, f"grey levels {levels.min()}..{levels.max()}, beyond 16 bits")
    return Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
