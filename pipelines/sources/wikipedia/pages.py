"""An article's HTML as MediaWiki's REST interfaces give it: its paragraphs, and the pictures a reader sees in it.

Both interfaces give Parsoid's HTML (mediawiki.org/wiki/Specs/HTML): headings and what is below them are in `section`
elements, a picture is an `img` inside something whose `typeof` begins with `mw:File` (`mw:Image` before 2.5). What
stays of the text and what goes is the same as in `wikitext.py`. Nothing is fetched here.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pipelines.sources.charsets import decode_page
from pipelines.sources.dom import parse
from pipelines.sources.inputs import is_language
from pipelines.sources.records import FieldError
from pipelines.sources.text import absolute_url, paragraphs_of
from schemas.failures import Reason
from schemas.tables import clean

_BLOCKS = frozenset(
    {"p", "li", "dd", "dt", "dl", "ul", "ol", "div", "section", "blockquote", "br", "hr", "pre", "center", "address"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_DROPPED = _HEADINGS | {
    "table", "figure", "figcaption", "style", "script", "noscript", "math", "svg", "audio", "video", "head", "nav",
}  # fmt: skip
_DROPPED_CLASSES = frozenset(
    {
        "mw-ref", "reference", "references", "mw-references-wrap", "reflist", "gallery", "hatnote", "infobox", "navbox",
        "sidebar", "metadata", "noprint", "mw-editsection", "mwe-math-element", "thumb", "toc", "catlinks",
        "shortdescription", "portalbox", "sistersitebox", "authority-control", "mw-empty-elt", "dablink", "rellink",
        "navigation-not-searchable", "geo-nondefault", "geo-multi-punct", "geo-inline-hidden",
    }
)  # fmt: skip
_DROPPED_ROLES = frozenset({"note", "navigation"})
# Pictures in these belong to the wiki and not to the article.
_UI_CLASSES = frozenset(
    {"navbox", "metadata", "noprint", "ambox", "sistersitebox", "portalbox", "authority-control", "mwe-math-element"}
)
_FILE_TYPES = ("mw:File", "mw:Image")
_ICON_SIZE = re.compile("[0-9]|[1-5][0-9]")  # in pixels: what is shown narrower or lower than 60 is an icon
_MAX_DEPTH = 400
_BODY = re.compile(r"<body\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ArticlePage:
    """What an article's HTML holds.

    Attributes:
        title: after redirects; None where the page does not say.
        page_id: the wiki's own number of it, which a move does not change.
        url: address a person can open.
        language: as the page states it.
        paragraphs: in order, without markup.
        image_urls: absolute, in order, each once.
        image_paragraphs: of each image, how many of the paragraphs stand wholly before it.
        retrieved: when it was fetched.
        captured: address that was asked for.
    """

    title: str | None
    page_id: str | None
    url: str | None
    language: str | None
    paragraphs: tuple[str, ...]
    image_urls: tuple[str, ...]
    image_paragraphs: tuple[int, ...]
    retrieved: str | None = None
    captured: str | None = None


def parse_article(data: bytes, *, base_url: str, repositories: Collection[str] = ()) -> ArticlePage:
    """Return the article in a REST answer.

    Args:
        data: HTML.
        base_url: the page's own address.
        repositories: of Wikimedia's image host that count; empty: every picture does.

    Raises:
        FieldError: BROKEN_RECORD: it has no body, or is nested too deep.
    """
    text = decode_page(data).text
    if not _BODY.search(text):
        raise FieldError(Reason.BROKEN_RECORD, f"{base_url}: expected the HTML of an article, found no body")
    tree, facts = parse(text), dict[str, str]()
    for element in tree.iter("html", "meta", "link", "body"):
        facts |= _facts(element.attrib)
    url = absolute_url(base_url, facts["url"]) if "url" in facts else ""
    found = paragraphs_of(_pieces(tree))
    images: dict[str, tuple[str, int]] = {}
    for picture, paragraph in found.between:
        image = absolute_url(base_url, clean(picture.address))
        images.setdefault(file_name(picture.address), (image, paragraph))
    kept = [
        (image, paragraph)
        for image, paragraph in images.values()
        if not repositories or any(f"/wikipedia/{name}/" in image for name in repositories)
    ]
    return ArticlePage(
        title=clean(unquote(url.partition("/wiki/")[2]).replace("_", " ")) or None,
        page_id=facts.get("page_id"),
        url=url or None,
        language=facts.get("language"),
        paragraphs=found.texts,
        image_urls=tuple(image for image, _ in kept),
        image_paragraphs=tuple(paragraph for _, paragraph in kept),
    )


def file_name(url: str) -> str:
    """Return the name of the file that an address of MediaWiki's shows, as a whole or as a thumbnail."""
    parts = url.partition("?")[0].split("/")
    return unquote(parts[-2] if "thumb" in parts else parts[-1])


@dataclass(frozen=True, slots=True)
class _Picture:
    address: str


def _pieces(
    element: Any, depth: int = 0, *, is_text: bool = True, is_article: bool = True, is_file: bool = False
) -> Iterator[str | _Picture]:
    """Yield what a reader sees of an element, with a line break where a block begins or ends.

    Args:
        element: of the page.
        depth: how many it is in.
        is_text: whether the text around it is the article's.
        is_article: whether pictures around it are the article's.
        is_file: whether pictures around it were put there as files.
    """
    if depth > _MAX_DEPTH:
        raise FieldError(Reason.BROKEN_RECORD, "expected the HTML of an article, found it nested too deep")
    tag, given = str(element.tag), element.attrib
    if tag == "img" and is_file and is_article and _is_picture(given):
        yield _Picture(given["src"].strip())
    classes = frozenset(given.get("class", "").split())
    is_text = is_text and not _is_dropped(tag, classes, given)
    is_article = is_article and _UI_CLASSES.isdisjoint(classes)
    is_file = is_file or given.get("typeof", "").replace("mw:Transclusion", "").strip().startswith(_FILE_TYPES)
    edge = "\n" if is_text and tag in _BLOCKS else ""
    yield edge
    yield (element.text or "").replace("\n", " ") if is_text else ""
    for child in element:
        yield from _pieces(child, depth + 1, is_text=is_text, is_article=is_article, is_file=is_file)
        yield (child.tail or "").replace("\n", " ") if is_text else ""
    yield edge


def _facts(given: Mapping[str, str]) -> dict[str, str]:
    is_version, is_page_id = given.get("rel") == "dc:isVersionOf", given.get("property") == "mw:pageId"
    is_language_named = given.get("http-equiv", "").lower() == "content-language"
    language = given.get("content" if is_language_named else "lang", "")
    facts = {
        "url": given.get("href", "") if is_version else "",
        "page_id": given.get("content", "") if is_page_id else "",
        "language": language if is_language(language) else "",
    }
    return {name: value for name, value in facts.items() if value}


def _is_dropped(tag: str, classes: Collection[str], given: Mapping[str, str]) -> bool:
    return (
        tag in _DROPPED
        or not _DROPPED_CLASSES.isdisjoint(classes)
        or given.get("role") in _DROPPED_ROLES
        or given.get("id") == "coordinates"
        or "mw:Extension/indicator" in given.get("typeof", "")
        or "display:none" in given.get("style", "").replace(" ", "")
    )


def _is_picture(given: Mapping[str, str]) -> bool:
    sizes = (given.get(name, "") for name in ("width", "height"))
    return bool(given.get("src", "").strip()) and not any(_ICON_SIZE.fullmatch(size) for size in sizes)
