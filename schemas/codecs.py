"""What a picture's bytes mean, for both halves.

`decode_image` is the one way an untrusted file becomes pixels: limits are checked on its header, before anything is
decoded, and every way it can fail is an `ImageRejected` with a reason of the closed list. Fetching, hashing,
fingerprints and the copies that are kept are elsewhere (`pipelines`). No other module here imports Pillow.
"""

import importlib.metadata
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PcxImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    PsdImagePlugin,
    QoiImagePlugin,
    SgiImagePlugin,
    TgaImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    features,
)

from schemas.failures import Reason, Rejection

_CODECS = ("jpg", "libjpeg_turbo", "jpg_2000", "webp", "avif", "libtiff")  # what decides pixels, and bytes of copies
STRIP_PIXELS = 1_000_000  # converted at once
FAINT_LEVELS = 24  # of 256, of a picture on white: less is not seen
MAX_PROFILE_BYTES = 4 * 2**20  # of a PNG's colour profile, unpacked; Pillow allows 1 MiB, less than real ones have
KEPT_BLOCKS = 4  # of Pillow's memory, of 16 MB at most: the next picture's, where the system would give new pages

_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)


class ImageRejected(Rejection):
    """Bytes that are no usable picture."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A format that is decoded: how its files start, and Pillow's reader of exactly that format.

    Attributes:
        weight: how many pixels one of it counts for, by the memory or the time that decoding one takes.
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
    _Format(
        "jpeg2000", (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"), Jpeg2KImagePlugin.Jpeg2KImageFile, weight=4
    ),
    _Format("pnm", (b"P4", b"P5", b"P6"), PpmImagePlugin.PpmImageFile),
    _Format("pnm", (b"P1", b"P2", b"P3"), PpmImagePlugin.PpmImageFile, weight=50),  # text, decoded in Python
    _Format("psd", (b"8BPS\0\1",), PsdImagePlugin.PsdImageFile, weight=2),
    _Format("pcx", (b"\x0a\2\1", b"\x0a\3\1", b"\x0a\5\1"), PcxImagePlugin.PcxImageFile),
    _Format("sgi", (b"\x01\xda",), SgiImagePlugin.SgiImageFile),
    _Format("qoi", (b"qoif",), QoiImagePlugin.QoiImageFile, weight=50),  # decoded in Python
)
_AVIF = _Format("avif", (), AvifImagePlugin.AvifImageFile, may_move=True, weight=2)
_TGA = _Format("tga", (), TgaImagePlugin.TgaImageFile)
_TGA_END = b"TRUEVISION-XFILE.\0"  # of version 2; version 1 has nothing to tell it by

# Pictures of other formats, recognised by their first bytes alone: no further parser ever sees untrusted data.
_OTHER_PICTURES = (
    b"\0\0\0\x0cJXL \r\n\x87\n",
    b"\xff\x0a",  # JPEG XL codestream
    b"\0\0\1\0",  # icon
    b"%PDF",
    b"%!PS",
    b"DDS ",
    b"gimp xcf",
    b"v/1\1",  # OpenEXR
    b"IIRO",  # Olympus raw
    b"FUJIFILMCCD-RAW",
)
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_ISO_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"heim", b"mif1", b"msf1", b"crx "})
_START_OF_SCAN = b"\xff\xda"  # cannot occur in a JPEG's compressed data
SCANS_AT_FULL_SIZE = 16  # a progressive JPEG has about ten; a smaller picture may have more in proportion

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
    """Return the upright RGB pixels of a picture in any format of `_FORMATS`; `.format` names which (`jpeg` ...).

    Transparent parts are shown on white, or on black where next to nothing would be seen on white; 16-bit grey is
    scaled to 8 bits; of an allowed animation, and of a TIFF with several pages, the first picture counts. Colour
    profiles are not applied.

    Args:
        data: the whole file.
        max_pixels: width x height, as the header gives it: beyond it nothing is decoded. Formats that take more memory
            or time count more for each pixel (a WebP's count double), and so do the many scans of a JPEG: what
            decoding may cost is bounded by what the file says, and never by the clock.
        min_side_px: least shorter side, in pixels.
        allow_animated: whether the first frame of an animation (GIF, PNG, WebP, AVIF) counts as an image.

    Raises:
        ImageRejected: with the reason, and what was expected and found.
    """
    kind = _sniff(data)
    _prepare()
    try:
        image = kind.open(io.BytesIO(data))
        scans = data.count(_START_OF_SCAN) if kind.name == "jpeg" else 0
        _check_header(image, kind, scans, max_pixels=max_pixels, min_side_px=min_side_px, allow_animated=allow_animated)
        image.load()
        turn = _TURN.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except _BOMB as error:
        raise ImageRejected(Reason.TOO_MANY_PIXELS, f"{kind.name}: {error}") from error
    except (ImageRejected, MemoryError):
        raise
    except Exception as error:  # decoders of untrusted bytes raise what they like
        raise ImageRejected(Reason.CORRUPT_IMAGE, f"{kind.name} of {len(data)} bytes: {error}") from error
    pixels = _to_rgb(image)
    upright = pixels if turn is None else pixels.transpose(turn)
    upright.format = kind.name
    return upright


def open_picture(data: bytes) -> ImageFile.ImageFile:
    """Return a picture with its header read and nothing decoded: for what else the file says.

    Raises:
        ImageRejected: it is in no format of `_FORMATS`.
        Exception: whatever the reader of its format raises of a broken header.
    """
    kind = _sniff(data)
    _prepare()
    return kind.open(io.BytesIO(data))


@cache
def _prepare() -> None:
    """Set Pillow up, once in a process: it uses its memory again, and keeps what it has to say of odd files to itself.

    Of 400 x 300 px it otherwise asks the system for 270 new pages a picture, which are a tenth of the work on it.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    PngImagePlugin.MAX_TEXT_CHUNK = MAX_PROFILE_BYTES
    Image.core.set_blocks_max(KEPT_BLOCKS)  # type: ignore[attr-defined]


def _sniff(data: bytes) -> _Format:
    for kind in _FORMATS:
        if data.startswith(kind.starts) and (kind.name != "webp" or data[8:12] == b"WEBP"):
            return kind
    is_iso = data[4:8] == b"ftyp"
    if is_iso and data[8:12] in _AVIF_BRANDS:
        return _AVIF
    if data.endswith(_TGA_END):
        return _TGA
    found = f"{len(data)} bytes that start with {data[:12]!r}"
    if data.startswith(_OTHER_PICTURES) or (is_iso and data[8:12] in _ISO_BRANDS):
        raise ImageRejected(Reason.UNSUPPORTED_FORMAT, f"expected a format that Pillow decodes, found {found}")
    raise ImageRejected(Reason.NOT_AN_IMAGE, f"expected an image, found {found}")


def _check_header(
    image: ImageFile.ImageFile, kind: _Format, scans: int, *, max_pixels: int, min_side_px: int, allow_animated: bool
) -> None:
    width, height = image.size
    if scans * width * height > SCANS_AT_FULL_SIZE * max_pixels:
        message = f"{scans} scans of {width} x {height} px, at most {SCANS_AT_FULL_SIZE} of {max_pixels} allowed"
        raise ImageRejected(Reason.TOO_MANY_PIXELS, message)
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
        on_white = _by_strips(image, partial(_on, colour="white"), "RGB")
        if _contrast(on_white) > FAINT_LEVELS:
            return on_white
        on_black = _by_strips(image, partial(_on, colour="black"), "RGB")
        return on_black if _contrast(on_black) > FAINT_LEVELS else on_white
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image], mode: str) -> Image.Image:
    """Return a picture converted some rows at a time, where the conversion looks at single pixels alone."""
    width, height = image.size
    rows = max(1, STRIP_PIXELS // width)
    whole = Image.new(mode, image.size)
    for top in range(0, height, rows):
        whole.paste(convert(image.crop((0, top, width, min(top + rows, height)))), (0, top))
    return whole


def _on(image: Image.Image, colour: str) -> Image.Image:
    shown = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", shown.size, colour), shown).convert("RGB")


def _contrast(image: Image.Image) -> int:
    """Return how far the darkest and the lightest of an RGB picture are apart, in the channel where that is most."""
    extremes = cast("tuple[tuple[int, int], ...]", image.getextrema())
    return max(highest - lowest for lowest, highest in extremes)


def _grey_from_16_bits(image: Image.Image) -> Image.Image:
    """Return 16-bit grey as 8 bits: 65535 becomes 255."""
    levels = np.asarray(image).astype(np.int64)
    if levels.min() < 0 or levels.max() > 65535:
        raise ImageRejected(Reason.UNSUPPORTED_FORMAT, f"grey levels {levels.min()}..{levels.max()}, beyond 16 bits")
    return Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))


@cache
def picture_libraries() -> dict[str, str]:
    """Return the versions of the libraries on which copies and fingerprints of pictures depend."""
    libraries = {name: importlib.metadata.version(name) for name in ("cykooz-resizer", "numpy", "pillow")}
    return libraries | {f"pillow.{codec}": str(features.version(codec)) for codec in _CODECS}
