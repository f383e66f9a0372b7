"""Reads the GIMP manual's pages as documents: figures with their titles, captions and neighbouring sentences.

Belongs here: finding figures in a page and choosing what is written under each. Which pages become posts is
`regular_posts.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from PIL import Image

MIN_SIDE_PX = 64
MAX_SHORT_SIDE_PX = 216
MAX_LONG_SIDE_PX = 320
MIN_CAPTION_WORDS = 5
MAX_CAPTION_WORDS = 40
SKIPPED_PAGES = ("glossary.html", "gimp-help-index.html", "index.html")


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture of a page with what is written about it."""

    path: Path
    title: str | None
    description: str | None


@dataclass(frozen=True, slots=True)
class ManualPage:
    """A page with its figures, in reading order, each picture once."""

    name: str
    title: str
    figures: tuple[Figure, ...]


def load_pages(gimp_help: Path) -> list[ManualPage]:
    """Every page of the English manual with at least two figures, by file name."""
    folder = next(path.parent for path in sorted(gimp_help.rglob("en/index.html")))
    pages = [read_page(path) for path in sorted(folder.glob("*.html")) if path.name not in SKIPPED_PAGES]
    return [page for page in pages if len(page.figures) >= 2]


def read_page(path: Path) -> ManualPage:
    """The page's figures; tiny icons and pictures already seen are left out."""
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    figures: dict[Path, Figure] = {}
    for block in soup.select("div.mediaobject"):
        image = block.find("img")
        if isinstance(image, Tag):
            picture = (path.parent / str(image["src"])).resolve()
            if picture not in figures and is_figure(picture):
                title, description = texts_of(block)
                figures[picture] = Figure(picture, title, description)
    heading = clean(soup.title.get_text() if soup.title else path.stem)
    title = re.sub(r"^(Chapter\s)?[\dA-Z.]+\.\s*", "", heading)
    return ManualPage(path.name, title, tuple(figures.values()))


def is_figure(picture: Path) -> bool:
    """True for an existing picture that is not an icon."""
    if not picture.exists():
        return False
    with Image.open(picture) as image:
        return min(image.size) >= MIN_SIDE_PX


def texts_of(block: Tag) -> tuple[str | None, str | None]:
    """Title and description of a figure; the nearest sentence when it has neither.

    A caption that says enough stands alone; a short one gets the figure's title before it.
    """
    frame = block.find_parent("div", class_=["figure", "informalfigure"])
    heading = frame.find("p", class_="title") if isinstance(frame, Tag) else None
    note = block.find("div", class_="caption")
    title = re.sub(r"^Figure\s[\w.]+\.\s*", "", clean(heading.get_text())) if heading else None
    caption = clean(note.get_text()) if note else None
    if caption and len(caption.split()) >= MIN_CAPTION_WORDS:
        return None, shorten(caption)
    if title or caption:
        return title or None, caption or None
    return None, nearby_sentence(block)


def nearby_sentence(block: Tag) -> str | None:
    """The last sentence before the figure, when there is one of fit length."""
    before = block.find_previous("p")
    if not isinstance(before, Tag):
        return None
    text = re.sub(r"^\[\d+\]\s*", "", clean(before.get_text()))
    sentences = re.split(r"(?<=[.!?])\s+", text)
    fit = [text for text in sentences if MIN_CAPTION_WORDS <= len(text.split()) <= MAX_CAPTION_WORDS]
    return fit[-1] if fit else None


def shorten(text: str) -> str:
    """The text's leading sentences, up to the greatest caption length."""
    kept: list[str] = []
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        if kept and len(" ".join([*kept, sentence]).split()) > MAX_CAPTION_WORDS:
            break
        kept.append(sentence)
    return " ".join(kept)


def clean(text: str) -> str:
    """The text on one line, quotation marks without the blanks inside."""
    joined = " ".join(text.split())
    return re.sub(r"\s+([”,.;:)])", r"\1", re.sub(r"“\s+", "“", joined))


def load_figure(figure: Figure) -> Image.Image:
    """The picture on white, RGB, no larger than the recording's limits."""
    with Image.open(figure.path) as opened:
        image = opened.convert("RGBA")
    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, (0, 0), image)
    scale = min(1.0, MAX_SHORT_SIDE_PX / min(flat.size), MAX_LONG_SIDE_PX / max(flat.size))
    size = (round(flat.width * scale), round(flat.height * scale))
    return flat.resize(size, Image.Resampling.LANCZOS) if scale < 1 else flat
