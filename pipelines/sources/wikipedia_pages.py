"""An article's HTML as MediaWiki's REST interfaces give it: its paragraphs, and the pictures a reader sees in it.

Both interfaces give Parsoid's HTML (mediawiki.org/wiki/Specs/HTML): headings and what is below them are in `section`
elements, a picture is an `img` inside something whose `typeof` begins with `mw:File` (`mw:Image` before 2.5). What
stays of the text and what goes is the same as in `wikitext.py`. The address of a thumbnail is changed to a width that
the host serves; nothing is fetched here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString

from pipelines.sources.article_settings import WIKIMEDIA_WIDTHS_PX
from pipelines.sources.fields import clean

_BLOCKS = frozenset(
    {"p", "li", "dd", "dt", "dl", "ul", "ol", "div", "section", "blockquote", "br", "hr", "pre", "center", "address"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_DROPPED = _HEADINGS | {
    "table", "figure", "figcaption", "style", "script", "noscript", "math", "svg", "audio", "video", "img", "head",
    "nav",
}  # fmt: skip
_DROPPED_CLASSES = frozenset(
    {
        "mw-ref", "reference", "references", "mw-references-wrap", "reflist", "gallery", "hatnote", "infobox", "navbox",
        "sidebar", "metadata", "noprint", "mw-editsection", "mwe-math-element", "thumb", "toc", "catlinks",
        "shortdescription", "portalbox", "sistersitebox", "authority-control", "mw-empty-elt",
    }
)  # fmt: skip
# Pictures in these belong to the wiki and not to the article.
_UI_CLASSES = frozenset(
    {"navbox", "metadata", "noprint", "ambox", "sistersitebox", "portalbox", "authority-control", "mwe-math-element"}
)
_FILE_TYPES = ("mw:File", "mw:Image")
_THUMBNAIL = re.compile(r"(?P<base>.+)/thumb(?P<file>/./../[^/]+)/(?P<page>[^/]*?)(?P<width>\d+)px-(?P<name>[^/]+)")
_WHOLE_FILE = re.compile(r"(?P<base>.+?)(?P<file>/[0-9a-f]/[0-9a-f]{2}/(?P<name>[^/]+))")
_SHOWN_AS_THEY_ARE = (".jpg", ".jpeg", ".png", ".gif", ".webp")
_DRAWINGS = (".svg",)


class PageError(ValueError):
    """An answer that is no article of Parsoid's."""


@dataclass(frozen=True, slots=True)
class ArticlePage:
    """What an article's HTML holds.

    Attributes:
        title: after redirects; None where the page does not say.
        page_id: the wiki's own number of it, which a move does not change.
        url: address a person can open.
        paragraphs: in order, without markup.
        image_urls: absolute, in order, each once.
    """

    title: str | None
    page_id: str | None
    url: str | None
    paragraphs: tuple[str, ...]
    image_urls: tuple[str, ...]


def parse_article(
    page: bytes,
    *,
    base_url: str,
    width_px: int,
    min_display_px: int = 60,
    repositories: Collection[str] = (),
    skip_sections: Collection[str] = (),
) -> ArticlePage:
    """Return the article in a REST answer; bytes that are not UTF-8 become U+FFFD.

    Args:
        page: HTML.
        base_url: the page's own address.
        width_px: of the thumbnails.
        min_display_px: pictures shown narrower or lower are icons, and left out.
        repositories: of Wikimedia's image host that count; empty: every picture does.
        skip_sections: headings, compared without case, whose sections are left out, pictures included.

    Raises:
        PageError: it has no body, or is nested too deep.
    """
    soup = BeautifulSoup(page.decode("utf-8", errors="replace"), "html.parser")
    body = soup.body
    if body is None:
        raise PageError(f"{base_url}: expected the HTML of an article, found no body")
    skipped = {heading.casefold() for heading in skip_sections}
    for section in body.find_all("section") if skipped else ():
        heading = section.find(sorted(_HEADINGS))
        if heading is not None and " ".join(heading.get_text().split()).casefold() in skipped:
            section.clear()
    url = _canonical(soup, base_url)
    title = unquote(urlsplit(url).path.rpartition("/wiki/")[2]).replace("_", " ") if url else None
    try:
        text = "".join(_visible(body))
    except RecursionError as error:
        raise PageError(f"{base_url}: nested too deep") from error
    lines = (" ".join(clean(line).split()) for line in text.split("\n"))
    images = (_image_url(image, base_url, width_px, min_display_px, repositories) for image in body.find_all("img"))
    return ArticlePage(
        title=clean(title) if title else None,
        page_id=_meta(soup, "mw:pageId"),
        url=url,
        paragraphs=tuple(line for line in lines if line),
        image_urls=tuple(dict.fromkeys(image for image in images if image)),
    )


def thumbnail_url(url: str, *, width_px: int, file_width_px: int | None = None) -> str:
    """Return the address of a picture at a width that Wikimedia serves.

    A picture no wider than that is had as it is, where browsers show its format; of others (TIFF, PDF) the widest
    allowed thumbnail is. Drawings have every width. An address that is no file of MediaWiki's comes back unchanged.

    Args:
        url: of a thumbnail, or of the file itself.
        width_px: wanted; one of `WIKIMEDIA_WIDTHS_PX`.
        file_width_px: of the file, where the page says so.
    """
    address = urlsplit(url)._replace(query="", fragment="").geturl()
    thumbnail, whole = _THUMBNAIL.fullmatch(address), _WHOLE_FILE.fullmatch(address)
    found = thumbnail or (whole if file_width_px is not None else None)
    if found is None:
        return url
    base, file = found["base"], found["file"]
    is_drawing = file.lower().endswith(_DRAWINGS)
    if file_width_px is not None and file_width_px <= width_px and not is_drawing:
        if file.lower().endswith(_SHOWN_AS_THEY_ARE):
            return f"{base}{file}"
        width_px = max((width for width in WIKIMEDIA_WIDTHS_PX if width <= file_width_px), default=width_px)
    page = thumbnail["page"] if thumbnail else ""
    name = found["name"] if thumbnail or not is_drawing else f"{found['name']}.png"
    return f"{base}/thumb{file}/{page}{width_px}px-{name}"


def _visible(tag: Tag) -> Iterator[str]:
    """Yield the pieces of text that a reader sees; a line break where a block begins or ends."""
    for child in tag.children:
        if isinstance(child, Tag):
            if _is_dropped(child):
                continue
            edge = "\n" if child.name in _BLOCKS else ""
            yield edge
            yield from _visible(child)
            yield edge
        elif type(child) is NavigableString:  # comments and the like are kinds of it
            yield child.replace("\n", " ")


def _is_dropped(tag: Tag) -> bool:
    if tag.name in _DROPPED or not _DROPPED_CLASSES.isdisjoint(tag.get_attribute_list("class")):
        return True
    return "display:none" in str(tag.get("style", "")).replace(" ", "")


def _image_url(
    image: Tag, base_url: str, width_px: int, min_display_px: int, repositories: Collection[str]
) -> str | None:
    """Return the address of a picture of the article; None for what is none, or an icon."""
    source = str(image.get("src") or "").strip()
    shown = [size for name in ("width", "height") if (size := _number(image, name)) is not None]
    if not source or min(shown, default=min_display_px) < min_display_px or not _is_article_file(image):
        return None
    url = urljoin(base_url, source)
    path = urlsplit(url).path
    if repositories and not any(f"/wikipedia/{repository}/" in path for repository in repositories):
        return None
    return clean(thumbnail_url(url, width_px=width_px, file_width_px=_number(image, "data-file-width")))


def _is_article_file(image: Tag) -> bool:
    """Return whether a picture was put there as a file, and not by a box of the wiki's own or by a formula."""
    is_file = False
    for parent in image.parents:
        if not _UI_CLASSES.isdisjoint(parent.get_attribute_list("class")):
            return False
        is_file = is_file or str(parent.get("typeof", "")).replace("mw:Transclusion", "").strip().startswith(
            _FILE_TYPES
        )
    return is_file


def _number(tag: Tag, name: str) -> int | None:
    value = str(tag.get(name, ""))
    return int(value) if value.isascii() and value.isdigit() else None


def _canonical(soup: BeautifulSoup, base_url: str) -> str | None:
    link = soup.find("link", rel="dc:isVersionOf")
    href = link.get("href") if link is not None else None
    return urljoin(base_url, str(href)) if href else None


def _meta(soup: BeautifulSoup, name: str) -> str | None:
    meta = soup.find("meta", property=name)
    content = meta.get("content") if meta is not None else None
    return str(content) if content else None
