"""The one reader of HTML pages: their paragraphs and the pictures between them, in the order of the page.

    body -> charset -> text -> tree: every block of text and every image, in their order (dom.py)
                          `-> trafilatura (Barbaresi 2021): which text is the article
                              aligned: a kept paragraph has its position in the tree again,
                              so each image of the article has its position between the paragraphs

A crawl's pages are read for their main text. The user's own pages are read whole. A picture in a paragraph stands
before it. The text of its `figcaption` is a picture's caption and no paragraph; else its `alt` is the caption.
"""

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pipelines.embedded import on_web
from pipelines.sources.charsets import decode_page
from pipelines.sources.dom import Dom, Image, base_of, language_of, parse, read_dom
from pipelines.sources.text import absolute_url, paragraphs_of
from schemas.metadata import plain_text
from schemas.tables import clean

_INLINE = frozenset({"hi", "ref", "del", "graphic"})  # of trafilatura's own elements
_KEY_CHARACTERS = 48  # of a block's beginning, by which it is recognised
_NOT_IN_KEYS = re.compile(r"[\W_]+")
_CLOSE_CHARACTERS = 600  # of other text between an article and a picture that is still of it
_APART = frozenset({"nav", "footer", "aside", "form"})
_APART_LABELS = re.compile(
    r"(?:^|[\s_-])(?:comments?|related|recommend\w*|sidebar|footer|share|sharing|social|promo\w*|advert\w*|ads?|sponsor\w*"
    r"|newsletter|subscri\w*|nav|navigation|navbar|menu|breadcrumbs?|popular|trending|cookie|logo|outbrain|taboola|masthead|topbar|site-header|global-header)(?:$|[\s_-])"
)


@dataclass(frozen=True, slots=True)
class PagePicture:
    """An image of a page.

    Attributes:
        addresses: at which it may be, resolved against the page's base; the best first, one at least.
        caption: of its `figcaption`, else its `alt`; empty: it has neither.
    """

    addresses: tuple[str, ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds.

    Attributes:
        pieces: paragraphs, each in one line, and pictures, in the order of the page.
        images: how many images the page has, stand-ins and those outside the article included.
        language: as the page states it.
        title: of its head.
        charset: that it was decoded with.
        is_charset_guessed: whether no declaration of the page could decode it.
    """

    pieces: tuple[str | PagePicture, ...]
    images: int
    language: str | None
    title: str | None
    charset: str
    is_charset_guessed: bool


def read_page(body: bytes, url: str = "", *, content_type: str | None = None, is_whole: bool = False) -> Page:
    """Return the paragraphs and the pictures of a page.

    Args:
        body: HTML or XHTML.
        url: of the page; addresses are resolved against it and its `base`. Empty: relative addresses stay as they are.
        content_type: value of the answer's header.
        is_whole: whether the whole body counts, and not its main text alone.
    """
    decoded = decode_page(body, content_type)
    tree = parse(decoded.text)
    if tree is None:
        return Page((), 0, None, None, decoded.charset, decoded.is_guessed)
    dom = read_dom(tree)
    title = " ".join(clean(tree.findtext(".//title") or "").split()) or None
    texts = [block.text for block in dom.blocks] if is_whole else main_text(decoded.text, url)
    pieces = tuple(_ordered(dom, texts, base_of(tree, url), is_whole=is_whole))
    return Page(pieces, dom.images_seen, language_of(tree), title, decoded.charset, decoded.is_guessed)


def main_text(page: str, url: str) -> list[str]:
    """Return the paragraphs of a page's main text; none where it has none."""
    from trafilatura import bare_extraction

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a page without a main text is a failure row
    found = bare_extraction(
        page, url=url or None, include_images=False, include_comments=False, include_tables=True, with_metadata=False
    )
    pieces = () if found is None or found.body is None else _texts(found.body)
    return list(paragraphs_of(pieces).texts)


def _texts(element: Any) -> Iterator[str]:
    """Yield the text of an element of trafilatura's, with line breaks around its paragraphs."""
    is_block = element.tag not in _INLINE
    yield "\n" if is_block else ""
    yield clean(element.text or "")
    for child in element:
        yield from _texts(child)
        yield clean(child.tail or "")
    yield "\n" if is_block else ""


def _ordered(dom: Dom, texts: Sequence[str], base: str, *, is_whole: bool) -> Iterator[str | PagePicture]:
    """Yield the paragraphs and the pictures between them."""
    aligned = _aligned([_key(block.text) for block in dom.blocks], [_key(text) for text in texts])
    article = None if is_whole else _Article(dom, aligned)
    blocks_kept = sorted(aligned)
    captions = set[int]()
    pictures: dict[int, list[PagePicture]] = {}
    for image in dom.images:
        addresses = _usable(image, base)
        if addresses and (article is None or article.holds(image)):
            caption, blocks = _caption(dom, image)
            captions.update(aligned[block] for block in blocks if block in aligned)
            text = plain_text(caption or image.alt) or ""
            before = bisect_left(blocks_kept, image.after)
            number = aligned[blocks_kept[before - 1]] + 1 if before else aligned[blocks_kept[0]] if aligned else 0
            pictures.setdefault(number, []).append(PagePicture(addresses, text))
    for number, text in enumerate(texts):
        yield from pictures.get(number, ())
        if number not in captions:
            yield text
    yield from pictures.get(len(texts), ())


def _usable(image: Image, base: str) -> tuple[str, ...]:
    """Return the addresses at which a picture may be asked for, without those that are no picture's."""
    if image.is_tiny:
        return ()
    found = dict.fromkeys(absolute_url(base, each) for each in image.addresses)
    return tuple(each for each in found if on_web(each) or not base)


def _key(text: str) -> str:
    return _NOT_IN_KEYS.sub("", text[: 4 * _KEY_CHARACTERS])[:_KEY_CHARACTERS].casefold()


def _aligned(blocks: Sequence[str], texts: Sequence[str]) -> dict[int, int]:
    """Return which of the texts each block is, both in increasing order.

    Texts that occur once in both are aligned first, as many as are in the same order (patience sorting); between two of
    these the others, from front to back.
    """
    there: dict[str, list[int]] = {}
    for number, key in enumerate(texts):
        if key:
            there.setdefault(key, []).append(number)
    counts = Counter(blocks)
    unique = [
        (number, there[key][0]) for number, key in enumerate(blocks) if counts[key] == len(there.get(key, ())) == 1
    ]
    anchors = [*_increasing(unique), (len(blocks), len(texts))]
    aligned: dict[int, int] = {}
    block, text = 0, 0
    for next_block, next_text in anchors:
        for number in range(block, next_block):
            numbers = there.get(blocks[number], [])
            at = bisect_left(numbers, text)
            if at < len(numbers) and numbers[at] < next_text:
                aligned[number] = numbers[at]
                text = numbers[at] + 1
        if next_block < len(blocks):
            aligned[next_block] = next_text
        block, text = next_block + 1, next_text + 1
    return aligned


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of pairs, which are sorted by their first, that is sorted by their second, too."""
    lasts, ends = list[int](), list[int]()  # of each length, the smallest last value, and which pair has it
    before = list[int]()
    for number, (_, value) in enumerate(pairs):
        length = bisect_left(lasts, value)
        before.append(ends[length - 1] if length else -1)
        lasts[length : length + 1] = [value]
        ends[length : length + 1] = [number]
    found = list[tuple[int, int]]()
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _caption(dom: Dom, image: Image) -> tuple[str, list[int]]:
    """Return the text of the `figcaption` of an image's figure, and the numbers of its blocks."""
    figure = next((each for each in dom.above(image.node) if dom.nodes[each].tag == "figure"), None)
    if figure is None:
        return "", []
    found = list[int]()
    for number in range(max(0, image.after - 3), min(len(dom.blocks), image.after + 6)):
        above = list(dom.above(dom.blocks[number].node))
        if figure in above and any(dom.nodes[each].tag == "figcaption" for each in above[: above.index(figure)]):
            found.append(number)
    return " ".join(dom.blocks[number].text for number in found), found


class _Article:
    """Which images are the article's, by the blocks of text that are."""

    def __init__(self, dom: Dom, aligned: Collection[int]) -> None:
        self._dom = dom
        self._first, self._last = min(aligned, default=0), max(aligned, default=-1)
        self._kept = {node for number in aligned for node in dom.above(dom.blocks[number].node)}

    def holds(self, image: Image) -> bool:
        """Return whether an image is between the article's blocks, or close before or behind them, and not apart."""
        nodes = self._dom.nodes
        apart = list(takewhile(lambda node: node not in self._kept, self._dom.above(image.node)))
        if any(nodes[node].tag in _APART or _APART_LABELS.search(nodes[node].label) for node in apart):
            return False
        if any(nodes[node].tag == "header" for node in apart) and not self._is_in_article(apart[-1]):
            return False
        before, behind = range(image.after, self._first), range(self._last + 1, image.after)
        between = sum(len(self._dom.blocks[number].text) for number in (*before, *behind))
        return bool(self._kept) and between < _CLOSE_CHARACTERS

    def _is_in_article(self, node: int) -> bool:
        return any(self._dom.nodes[each].tag in ("article", "main") for each in self._dom.above(node))
