"""The tree of a page, as a list of its blocks of text and its images in their order; and the addresses of an image.

The addresses that an `img` of a page has its picture at, the best one first.

    <picture><source srcset="a.webp 800w" media="..."> <img src="a.jpg" srcset="a-300.jpg 300w, a-900.jpg 900w">
    <img src="loading.gif" data-src="a.jpg">  data-original, data-lazy-src, data-srcset, data-hi-res-src ...

Libraries that load a picture late keep its address in an attribute of their own, and a stand-in in `src`. There are too
many to name: any attribute counts whose value looks like the address of an image. Of several sizes the one comes first
that a browser takes in a window of 1,280 pixels (HTML standard 4.8.4.3). Stand-ins are none of the addresses.

A block is the text between two beginnings or ends of block elements, or line breaks. What a reader never sees (scripts,
templates, hidden elements) is no text. An image inside a block stands before it. `noscript` holds the copy of an image
that a script would load, which is the better address of the image beside it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from lxml import etree, html

from pipelines.sources.text import absolute_url
from schemas.tables import clean

_WINDOW_PX = 1280.0
_MAX_VALUE = 20_000  # characters of an attribute that are read
_IMAGE_ENDING = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|bmp|tiff?|jfif|heic)(?:$|[?#!/&;:@,)])", re.IGNORECASE)
_LATE = re.compile(r"src(?:set)?$|lazy|original|hi-?res|full|retina|-image$|-img$|-url$|^file$", re.IGNORECASE)
_NEVER = re.compile(
    r"^(?:alt|title|id|class|style|usemap|longdesc|sizes|on.*|aria-.*|itemprop|name)$|placeholder|preview|thumb|low"
    r"|fallback|error|blur|-old-|caption|credit|share|href|-link|-alt|-title|-page(?!speed)",
    re.IGNORECASE,
)
# What names of stand-ins are made of, with nothing beside it but words that say nothing: grey.gif, blank-300x200.png;
# grey-cat.jpg is a picture. The longest come first.
_WAITING = "transparent|trans|blank|pixel|loading|loader|load|lazy|gr[ea]y|clear|empty|dummy|blur|fallback|spinner"
_STAND_IN = re.compile(
    r"(?:^|[-_.])(?:placeholder|spacer|lazyload\w*|lqip|1x1|ajax-loader|no-?image|noimg)(?:$|[-_.])|^(?:spacer|placeholder)"
    rf"|^(?=.*(?:{_WAITING}))(?:(?>{_WAITING}|pre|white|images?|img|bg|gif|icon|default|\d++x?)[-_.]*+)*+$",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"data:(?:image/(?!svg)[\w.+-]+|application/octet-stream|)(?:;[\w-]+=[^;,]*)*;base64,", re.IGNORECASE
)
_LEAST_INLINE = 150  # characters: a shorter one is a dot that stands in for a picture
_CANDIDATE = re.compile(r"\s*,*\s*(\S*[^\s,])(?:\s+([\d.]+)([wx])(?:\s+\d+h)?)?\s*(?:,|$)")
_LENGTH = re.compile(r"([\d.]+)(px|vw|r?em|)$")
_MEDIA = re.compile(r"(min|max)-width\s*:\s*([\d.]+)(px|r?em)")
_PX = {"px": 1.0, "": 1.0, "vw": _WINDOW_PX / 100, "em": 16.0, "rem": 16.0}
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog",
        "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
        "header", "hr", "html", "li", "main", "menu", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody",
        "td", "tfoot", "th", "thead", "tr", "ul",
    }
)  # fmt: skip
_IMAGES = frozenset({"img", "amp-img"})
_UNSEEN = frozenset(
    {
        "script", "style", "template", "head", "iframe", "object", "embed", "svg", "math", "select", "textarea",
        "audio", "video", "map", "canvas", "title",
    }
)  # fmt: skip
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_TINY = re.compile(r"\s*\d{1}(?:px)?\s*")  # in pixels


def addresses_of(image: Any) -> list[str]:
    """Return the addresses of an `img` as they stand in it, the best first; empty where it has a stand-in alone.

    Args:
        image: element of lxml.
    """
    sizes = str(image.get("sizes") or image.get("data-sizes") or "")
    is_lazy = "lazy" in (image.get("class") or "").lower()
    late, sets, singles = list[str](), list[str](), list[str]()
    for name, value in image.attrib.items():
        text = str(value)[:_MAX_VALUE].strip()
        if name in ("src", "srcset") or not text or _NEVER.search(name):
            continue
        if "srcset" in name.lower() or (" " in text and "," in text and _IMAGE_ENDING.search(text)):
            late += _of_set(text, sizes)
        elif _is_address(name, text):
            (late if is_lazy or _LATE.search(name) else singles).append(text)
    sets += _of_set(str(image.get("srcset") or "")[:_MAX_VALUE], sizes)
    if not late:
        sets.append(str(image.get("src") or "").strip())
    found = [*_of_sources(image), *late, *sets, *singles]
    return [each for each in dict.fromkeys(found) if each and not is_stand_in(each)]


def _src(image: Any) -> str:
    """Return where an image itself says that it is; empty: a `data:` address of no picture, or too short to be one."""
    text = next(filter(None, map(image.get, ("src", "xlink:href", "href", "data"))), "").strip()
    is_inline = len(text) >= _LEAST_INLINE and _INLINE.match(text) is not None
    return text if is_inline or not text.lower().startswith("data:") else ""


def is_stand_in(address: str) -> bool:
    """Return whether an address is one of a picture that is shown until the real one comes, or that nobody sees."""
    if address.lower().startswith(("data:", "about:", "blob:", "javascript:", "#")):
        return True
    try:
        name = urlsplit(address).path.rstrip("/").rpartition("/")[2]
    except ValueError:
        return True
    return _STAND_IN.search(name.rpartition(".")[0] or name) is not None


def _is_address(name: str, value: str) -> bool:
    """Return whether an attribute that is no standard one holds the address of an image, by its name and its value."""
    if re.search(r"[\s{}<>\"\\]", value):
        return False
    is_named = name.lower().endswith("src") or "original" in name.lower() or "lazy" in name.lower()
    return bool(_IMAGE_ENDING.search(value)) or (is_named and ("/" in value or "." in value))


def _of_sources(image: Any) -> Iterator[str]:
    """Yield the addresses of the sources of the `picture` that an image is in, in a window of the usual width."""
    picture = next(image.iterancestors("picture"), None)
    for source in () if picture is None else picture.iter("source"):  # to lxml an image is in the source before it
        if "svg" not in str(source.get("type") or "") and _holds(str(source.get("media") or "")):
            sizes = str(source.get("sizes") or source.get("data-sizes") or "")
            for name, value in source.attrib.items():
                if "srcset" in name.lower():
                    yield from _of_set(str(value)[:_MAX_VALUE], sizes)


def _of_set(value: str, sizes: str) -> list[str]:
    """Return the addresses of a `srcset`, the best first."""
    width = _width(sizes)
    wide, dense = list[tuple[float, str]](), list[tuple[float, str]]()
    for address, number, unit in _CANDIDATE.findall(value):
        try:
            (wide if unit == "w" else dense).append((float(number or 1), address))
        except ValueError:  # 1.2.3x
            dense.append((1.0, address))
    wide.sort(key=lambda each: (each[0] < width, abs(each[0] - width)))
    dense.sort(key=lambda each: (each[0] > 2, -each[0]))
    return [address for _, address in (*wide, *dense)]


def _width(sizes: str) -> float:
    """Return how wide an image is shown, in pixels."""
    for part in sizes.lower().split(","):
        media, _, length = part.strip().rpartition(" ")
        found = _LENGTH.match(length)
        if found and _holds(media):
            return float(found[1]) * _PX[found[2]] if found[1].count(".") < 2 else _WINDOW_PX
    return _WINDOW_PX


def _holds(media: str) -> bool:
    """Return whether a media query holds in a window of the usual width; only widths are looked at."""
    for limit, number, unit in _MEDIA.findall(media.lower()):
        width = float(number if number.count(".") < 2 else 0) * _PX[unit]
        if (limit == "min" and width > _WINDOW_PX) or (limit == "max" and width < _WINDOW_PX):
            return False
    return "print" not in media.lower()


@dataclass(frozen=True, slots=True)
class Node:
    """An element of the tree.

    Attributes:
        parent: its number, -1 of the root.
        label: its class and id.
    """

    parent: int
    tag: str
    label: str


@dataclass(frozen=True, slots=True)
class Block:
    """A block of text in one line, and the number of the element that it is in."""

    text: str
    node: int


@dataclass(frozen=True, slots=True)
class Image:
    """An image.

    Attributes:
        addresses: as they stand in it, the best first; empty: it has a stand-in alone.
        src: its own address, a stand-in or not; a `data:` address where it is a picture in base64.
        after: how many blocks stand wholly before it.
        node: number of its element.
        alt: its text.
        is_tiny: whether its size is stated, and too small to be a picture.
        is_copy: whether it is in a `noscript`.
    """

    addresses: tuple[str, ...]
    after: int
    node: int
    alt: str
    is_tiny: bool
    is_copy: bool
    src: str = ""


@dataclass(slots=True)
class Dom:
    """The blocks and images of a page in their order, and the elements that they are in.

    Attributes:
        images_seen: images of the page, stand-ins and copies included.
    """

    nodes: list[Node] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    images_seen: int = 0

    def above(self, node: int) -> Iterator[int]:
        """Yield the numbers of an element and of those that it is in, the nearest first."""
        while node >= 0:
            yield node
            node = self.nodes[node].parent


def parse(text: str) -> Any:
    """Return the tree of a page, None where there is none."""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        return etree.fromstring(text.replace("\0", "\ufffd").encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:  # empty
        return None


def base_of(tree: Any, url: str) -> str:
    """Return what the addresses of a page are relative to."""
    found = next(tree.iterfind(".//base[@href]"), None)
    return url if found is None else absolute_url(url, found.get("href").strip())


def language_of(tree: Any) -> str | None:
    """Return the language that a page states."""
    stated = next(filter(None, (each.get("lang") or each.get("xml:lang") for each in tree.iter("html", "body"))), None)
    metas = (each for each in tree.iter("meta") if each.get("http-equiv", "").lower() == "content-language")
    if not stated and (meta := next(metas, None)) is not None:
        stated = meta.get("content", "").partition(",")[0]
    return (stated or "").strip().replace("_", "-") or None


def read_dom(tree: Any) -> Dom:
    """Return the blocks and images of a tree."""
    reader = _Reader()
    walker = etree.iterwalk(tree, events=("start", "end"))
    for event, element in walker:
        if event == "end":
            reader.end(element)
        elif not reader.begin(element):
            walker.skip_subtree()
    return reader.dom


class _Reader:
    """Collects the blocks and images of a tree, from its beginnings and ends of elements."""

    def __init__(self) -> None:
        self.dom = Dom()
        self._line: list[str] = []
        self._node = self._block = -1
        self._copies = 0  # open elements
        self._is_beside = False  # whether no text came since the last image

    def begin(self, element: Any) -> bool:
        """Take the beginning of an element; return whether what is in it is seen."""
        tag = element.tag if isinstance(element.tag, str) else ""
        label = f"{element.get('class') or ''} {element.get('id') or ''}".lower()
        self.dom.nodes.append(Node(self._node, tag, label))
        self._node = len(self.dom.nodes) - 1
        self._copies += tag == "noscript"
        if tag in _BLOCKS:
            self._end_block()
        is_shown = tag in _IMAGES or (tag == "object" and _IMAGE_ENDING.search(element.get("data") or ""))
        for image in (element,) if is_shown else element.iter("image") if tag == "svg" else ():
            self._image(image)
        is_seen = tag not in _UNSEEN and not _HIDDEN.search(element.get("style") or "")
        if is_seen:
            self._text(element.text)
        return is_seen

    def end(self, element: Any) -> None:
        """Take the end of an element, and the text behind it."""
        node = self.dom.nodes[self._node]
        if node.tag in _BLOCKS:
            self._end_block()
        self._copies -= node.tag == "noscript"
        self._node = node.parent
        if node.parent >= 0:
            self._text(element.tail)

    def _text(self, text: str | None) -> None:
        if not text or self._copies:
            return
        self._line.append(text)
        if text.strip():
            self._is_beside, self._block = False, self._node

    def _end_block(self) -> None:
        text = " ".join(clean("".join(self._line)).split())
        self._line.clear()
        if text:
            self.dom.blocks.append(Block(text, self._block))

    def _image(self, element: Any) -> None:
        self.dom.images_seen += 1
        sides = () if element.get("layout") == "responsive" else ("width", "height")  # of AMP: its proportions
        is_tiny = any(_TINY.fullmatch(element.get(side) or "") for side in sides)
        alt = " ".join(clean(element.get("alt") or "").split())
        addresses = tuple(addresses_of(element))
        image = Image(addresses, len(self.dom.blocks), self._node, alt, is_tiny, self._copies > 0, _src(element))
        images = self.dom.images
        if images and self._is_beside and self._is_copied(images[-1], image):
            last = images.pop()
            if not last.addresses and images and self._is_near(images[-1], image):
                images.pop()  # a blurred preview, before what a script would fill
            copied = image if image.is_copy else last
            image = replace(copied, alt=image.alt or last.alt, is_copy=False)
        images.append(image)
        self._is_beside = True

    def _is_copied(self, last: Image, image: Image) -> bool:
        """Return whether of an image and the one before it one is a copy for readers without scripts."""
        if last.is_copy and not image.is_copy:
            is_same = not image.addresses or not set(image.addresses).isdisjoint(last.addresses)
            return is_same and self._is_near(image, last)
        return image.is_copy and not last.is_copy and bool(image.addresses) and self._is_near(last, image)

    def _is_near(self, image: Image, copy: Image) -> bool:
        """Return whether an image is in the element that the `noscript` with a copy is in, or is that element."""
        noscript = next(each for each in self.dom.above(copy.node) if self.dom.nodes[each].tag == "noscript")
        return self.dom.nodes[noscript].parent in islice(self.dom.above(image.node), 4)
