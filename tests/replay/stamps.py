"""Reads the Tux Paint stamps: pictures with a transparent background and a one-line description each.

Belongs here: which stamps are fit for a picture with a caption, and how one becomes pixels. Letters,
digits, notes and signs are left out. SVG stamps are rendered with `resvg-py`, which only the
recorder needs. Composing stamps into pictures is `canvas.py`.
"""

import html
import importlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

SKIPPED_FOLDERS = (
    "symbols/alphabets",
    "symbols/math",
    "symbols/music",
    "symbols/money",
    "symbols/faces",
    "military",
    "seasonal/hanukkah",
)
MIN_PNG_SIDE_PX = 64
MAX_DESCRIPTION_WORDS = 30
MIN_OPAQUE_SHARE = 0.12
RENDER_WIDTH_PX = 300


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp: its picture file, its folder, and its description by language code (`en` always)."""

    path: Path
    category: str
    descriptions: dict[str, str]

    @property
    def description(self) -> str:
        """The package's own English description."""
        return self.descriptions["en"]


def load_stamps(tuxpaint: Path) -> list[Stamp]:
    """All fit stamps under `tuxpaint/stamps`, in the order of their paths."""
    root = tuxpaint / "stamps"
    found: list[Stamp] = []
    for text_path in sorted(root.rglob("*.txt")):
        category = text_path.parent.relative_to(root).as_posix()
        if category.startswith(SKIPPED_FOLDERS):
            continue
        descriptions = read_descriptions(text_path)
        words = len(re.findall(r"\w+", descriptions.get("en", "")))
        picture = picture_of(text_path)
        if picture is not None and 0 < words <= MAX_DESCRIPTION_WORDS:
            stamp = Stamp(picture, category, descriptions)
            if opaque_share(stamp) >= MIN_OPAQUE_SHARE:
                found.append(stamp)
    return found


def read_descriptions(text_path: Path) -> dict[str, str]:
    """Descriptions by language: the first line is English, later ones read `xx.utf8=...`."""
    first, *rest = text_path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    descriptions = {"en": " ".join(html.unescape(first).split())}
    for line in rest:
        language, separator, text = line.partition(".utf8=")
        if separator and text.strip():
            descriptions[language] = " ".join(text.split())
    return descriptions


def picture_of(text_path: Path) -> Path | None:
    """The stamp's picture: its PNG when large enough, else its SVG, else None."""
    png, svg = text_path.with_suffix(".png"), text_path.with_suffix(".svg")
    if png.exists():
        with Image.open(png) as image:
            if max(image.size) >= MIN_PNG_SIDE_PX or not svg.exists():
                return png if max(image.size) >= MIN_PNG_SIDE_PX else None
    return svg if svg.exists() else None


def render_stamp(stamp: Stamp) -> Image.Image:
    """The stamp as RGBA, cropped to its opaque part."""
    if stamp.path.suffix == ".svg":
        renderer = importlib.import_module("resvg_py")
        encoded: bytes = bytes(renderer.svg_to_bytes(svg_path=str(stamp.path), width=RENDER_WIDTH_PX))
        image = Image.open(io.BytesIO(encoded)).convert("RGBA")
    else:
        with Image.open(stamp.path) as opened:
            image = opened.convert("RGBA")
    return image.crop(image.getchannel("A").getbbox() or (0, 0, 1, 1))


def opaque_share(stamp: Stamp) -> float:
    """The share of a stamp's box that is more opaque than not; 0 for an SVG of no stated size."""
    try:
        image = render_stamp(stamp)
    except ValueError:
        return 0.0
    counts = image.getchannel("A").histogram()
    return sum(counts[128:]) / (image.width * image.height)
