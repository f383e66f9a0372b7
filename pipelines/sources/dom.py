"""The tree of a page, as a list of its blocks of text and its images in their order.

A block is the text between two beginnings or ends of block elements, or line breaks. What a reader never sees (scripts,
templates, hidden elements) is no text. An image inside a block stands before it. `noscript` holds the copy of an image
that a script would load, which is the better address of the image beside it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from lxml import etree, html

from pipelines.sources.page_pictures import addresses_of
from pipelines.sources.text import absolute_url
from schemas.tables import clean

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


@dataclass(slots=True)
class Node:
    """An element of the tree.

    Attributes:
        parent: its number, -1 of the root.
        text: characters below it.
        linked: of these, how many are in links.
    """

    parent: int
    tag: str
    label: str
    text: int = 0
    linked: int = 0


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
    root = next(tree.iter("html"), None)
    stated = None if root is None else root.get("lang") or root.get("xml:lang")
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
        self._links = self._copies = 0  # open elements
        self._is_beside = False  # whether no text came since the last image

    def begin(self, element: Any) -> bool:
        """Take the beginning of an element; return whether what is in it is seen."""
        tag = element.tag if isinstance(element.tag, str) else ""
        label = f"{element.get('class') or ''} {element.get('id') or ''}".lower()
        self.dom.nodes.append(Node(self._node, tag, label))
        self._node = len(self.dom.nodes) - 1
        self._links += tag == "a"
        self._copies += tag == "noscript"
        if tag in _BLOCKS:
            self._end_block()
        if tag in _IMAGES:
            self._image(element)
        is_seen = tag not in _UNSEEN and not _HIDDEN.search(element.get("style") or "")
        if is_seen:
            self._text(element.text)
        return is_seen

    def end(self, element: Any) -> None:
        """Take the end of an element, and the text behind it."""
        node = self.dom.nodes[self._node]
        if node.tag in _BLOCKS:
            self._end_block()
        self._links -= node.tag == "a"
        self._copies -= node.tag == "noscript"
        self._node = node.parent
        if node.parent >= 0:
            above = self.dom.nodes[node.parent]
            above.text += node.text
            above.linked += node.linked
            self._text(element.tail)

    def _text(self, text: str | None) -> None:
        if not text or self._copies:
            return
        self._line.append(text)
        if length := len(text.strip()):
            self._is_beside = False
            self._block = self._node
            self.dom.nodes[self._node].text += length
            self.dom.nodes[self._node].linked += length if self._links else 0

    def _end_block(self) -> None:
        text = " ".join(clean("".join(self._line)).split())
        self._line.clear()
        if text:
            self.dom.blocks.append(Block(text, self._block))

    def _image(self, element: Any) -> None:
        self.dom.images_seen += 1
        is_tiny = any(_TINY.fullmatch(element.get(side) or "") for side in ("width", "height"))
        alt = " ".join(clean(element.get("alt") or "").split())
        addresses = tuple(addresses_of(element))
        image = Image(addresses, len(self.dom.blocks), self._node, alt, is_tiny, self._copies > 0)
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
        """Return whether an image is in the element that the `noscript` with a copy is in."""
        noscript = next(each for each in self.dom.above(copy.node) if self.dom.nodes[each].tag == "noscript")
        return self.dom.nodes[noscript].parent in islice(self.dom.above(image.node), 1, 4)
