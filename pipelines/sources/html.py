"""The one reader of HTML pages: their text, their paragraphs and the pictures between them, in the order of the page.

A page's text: which character set its bytes are in, in the order of the HTML standard (13.2.3).

    byte order mark -> charset of the Content-Type header -> meta element -> guess

Names are those of the WHATWG Encoding Standard, with all their aliases. A declared character set that cannot decode the
page gives way to the next declaration. Bytes that are UTF-8 by form are UTF-8, whatever single-byte set is declared:
such a declaration decodes anything, and decodes this wrongly. A few damaged bytes, which many pages have, decide
nothing: they become U+FFFD.

    body -> charset -> text -> tree: every block of text and every image, in their order (dom.py)
                          `-> trafilatura (Barbaresi 2021): which text is the article
                              aligned: a kept paragraph has its position in the tree again,
                              so each image of the article has its position between the paragraphs

A crawl's pages are read for their main text. The user's own pages are read whole. A picture in a paragraph stands
before it. The text of its `figcaption` is a picture's caption and no paragraph; else its `alt` is the caption.
"""

import codecs
import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import webencodings

from pipelines.embedded import on_web
from pipelines.sources.dom import Dom, Image, base_of, is_stand_in, language_of, parse, read_dom
from pipelines.sources.text import absolute_url, paragraphs_of
from schemas.metadata import plain_text
from schemas.tables import clean

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_HEAD_BYTES = 2**17  # that are searched for a declaration; browsers, too, read one behind their first 1,024 bytes
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META = re.compile(rb"<meta\b[^>]{0,2000}?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]{1,64})", re.IGNORECASE)
_XML = re.compile(rb"\A\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([^\"']{1,64})")
_HEADER = re.compile(r"\bcharset\s*=\s*[\"']?\s*([^\s\"';,]{1,64})", re.IGNORECASE)
_LANGUAGE = re.compile(  # of a page, or of the front matter before Markdown
    rb"(?:<html\b[^>]{0,2000}?\blang\s*=|^lang(?:uage)?\s*[:=])\s*[\"']?([A-Za-z]{2,3})\b", re.IGNORECASE | re.MULTILINE
)
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_SURE = 3  # sequences of UTF-8 beyond ASCII that no other set has by chance
_DAMAGE = 0.1  # of the characters beyond ASCII: with more damaged ones, another set made the page
_DAMAGE_OF_UTF8 = 0.5  # since no other set has its sequences by chance
_SINGLE_BYTE = ("windows-", "iso-8859-", "koi8-", "ibm", "mac", "x-mac-")
_CODECS = {"euc-jp": "euc_jis_2004", "gbk": "gb18030"}  # of sets that have more characters on the web
# What a guess calls a set, where that is no name of the standard.
_GUESSES = {"big5hkscs": "big5", "cp932": "shift_jis", "cp949": "euc-kr", "cp950": "big5", "euc_jis_2004": "euc-jp"}
# Of the table of suggested defaults in the HTML standard (13.2.3.2); any other language has windows-1252.
_BY_LANGUAGE = {
    "ar": "windows-1256", "az": "windows-1254", "ba": "windows-1251", "be": "windows-1251", "bg": "windows-1251",
    "cs": "windows-1250", "el": "iso-8859-7", "et": "windows-1257", "fa": "windows-1256", "he": "windows-1255",
    "hr": "windows-1250", "hu": "iso-8859-2", "ja": "shift_jis", "kk": "windows-1251", "ko": "euc-kr",
    "ku": "windows-1254", "ky": "windows-1251", "lt": "windows-1257", "lv": "windows-1257", "mk": "windows-1251",
    "pl": "iso-8859-2", "ru": "windows-1251", "sah": "windows-1251", "sk": "windows-1250", "sl": "iso-8859-2",
    "sr": "windows-1251", "tg": "windows-1251", "th": "windows-874", "tr": "windows-1254", "tt": "windows-1251",
    "uk": "windows-1251", "vi": "windows-1258", "zh": "gb18030",
}  # fmt: skip
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
class Decoded:
    """A page's text, and the character set that gave it.

    Attributes:
        charset: by its name in the Encoding Standard.
        is_guessed: whether no declaration could decode the page.
    """

    text: str
    charset: str
    is_guessed: bool


def decode_page(body: bytes, content_type: str | None = None, language: str = "") -> Decoded:
    """Return the text of a page.

    Args:
        body: of the page.
        content_type: value of the answer's header; None: there is none.
        language: of a page that states none; "": it is not known.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return Decoded(_codec(name).decode(body[len(mark) :], "replace")[0], name, False)
    declared = list(_declared(body, content_type))
    if (text := _decoded(body, "utf-8", _DAMAGE_OF_UTF8)) is not None:
        is_certain = "utf-8" in declared or len(_MULTIBYTE.findall(body[:_HEAD_BYTES])) >= _SURE
        if is_certain or (not declared and text.isascii()):
            return Decoded(text, "utf-8", False)
    for name, damage in [*((name, 0.0) for name in declared), *((name, _DAMAGE) for name in declared)]:
        if (text := _decoded(body, name, damage)) is not None:
            return Decoded(text, name, False)
    return _guessed(body, language)


def _declared(body: bytes, content_type: str | None) -> Iterator[str]:
    """Yield the known names of character sets that a page declares, in the order of the standard."""
    head = _COMMENT.sub(b"", body[:_HEAD_BYTES])
    header = _HEADER.search(content_type or "")
    if header and (known := webencodings.lookup(header[1])):
        yield known.name
    for found in (_META.search(head), _XML.search(head)):
        if found and (known := webencodings.lookup(found[1].decode("ascii", "replace"))):
            yield "utf-8" if known.name.startswith("utf-16") else known.name  # it could not have been read, else


def _guessed(body: bytes, language: str) -> Decoded:
    """Return the text by what its bytes look like, and by the language that it names."""
    from charset_normalizer import from_bytes

    if found := _LANGUAGE.search(body[:_HEAD_BYTES]):
        language = found[1].decode()
    names = ["utf-8", _BY_LANGUAGE.get(language.partition("-")[0].lower(), "windows-1252") if language else ""]
    best = None if language else from_bytes(body[:_HEAD_BYTES]).best()
    names += [_GUESSES.get(best.encoding, best.encoding) if best else "", "windows-1252"]
    for name, damage in [*((name, 0.0) for name in names if name), ("windows-1252", _DAMAGE)]:
        known = webencodings.lookup(name.replace("_", "-")) or webencodings.lookup(name)
        if known is not None and (text := _decoded(body, known.name, damage)) is not None:
            return Decoded(text, known.name, True)
    return Decoded(body.decode("utf-8", "replace"), "utf-8", True)


def _decoded(body: bytes, name: str, damage: float) -> str | None:
    """Return the text of a body, None where a character set cannot have made it.

    Args:
        body: of a page.
        name: of the character set, in the standard.
        damage: share of the characters beyond ASCII that may be damaged; 0: none. A single-byte set, which leaves few
            bytes without a character, may then have any.
    """
    try:
        text = _codec(name).decode(body, "replace" if damage else "strict")[0]
    except (UnicodeError, LookupError):
        return None
    if damage and not name.startswith(_SINGLE_BYTE):
        damaged = text.count("\ufffd")
        if damaged and damaged > damage * sum(character > "\x7f" for character in text):
            return None
    return text if "<" in text or b"<" not in body else None  # a page in UTF-16 that is none


def _codec(name: str) -> codecs.CodecInfo:
    return codecs.lookup(_CODECS[name]) if name in _CODECS else webencodings.lookup(name).codec_info


@dataclass(frozen=True, slots=True)
class PagePicture:
    """An image of a page.

    Attributes:
        addresses: at which it may be, resolved against the page's base; the best first, one at least. Of a page that is
            read whole it may be a `data:` address.
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


def read_page(
    body: bytes, url: str = "", *, content_type: str | None = None, language: str = "", is_whole: bool = False
) -> Page:
    """Return the paragraphs and the pictures of a page.

    Args:
        body: HTML or XHTML.
        url: of the page; addresses are resolved against it and its `base`. Empty: relative addresses stay as they are.
        content_type: value of the answer's header.
        language: of pages that state none, which a guess at their character set goes by.
        is_whole: whether the whole body counts, and not its main text alone.
    """
    decoded = decode_page(body, content_type, language)
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
        addresses = _usable(image.addresses, image, base)
        if is_whole and image.src and (not addresses or not is_stand_in(image.src)):
            addresses = tuple(dict.fromkeys((*addresses, *_usable((image.src,), image, base))))
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


def _usable(addresses: Iterable[str], image: Image, base: str) -> tuple[str, ...]:
    """Return the addresses at which a picture may be asked for, without those that are no picture's."""
    if image.is_tiny:
        return ()
    found = dict.fromkeys(absolute_url(base, each) for each in addresses)
    return tuple(each for each in found if on_web(each) or not on_web(base) or each[:5].lower() == "data:")


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
        in_header = any(nodes[node].tag == "header" for node in apart)
        if in_header and not any(nodes[each].tag in ("article", "main") for each in self._dom.above(apart[-1])):
            return False
        before, behind = range(image.after, self._first), range(self._last + 1, image.after)
        between = sum(len(self._dom.blocks[number].text) for number in (*before, *behind))
        return bool(self._kept) and between < _CLOSE_CHARACTERS
