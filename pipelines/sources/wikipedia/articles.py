"""Wiki markup becomes paragraphs of plain text, in the way a reader sees an article without its boxes and pictures.

What stays: running text, list items, and the words of links. What goes: templates (info boxes, citations), references,
tables, galleries and formulas, files with their captions (H: "not including captions"), categories, links to other
languages, comments, headings. mwparserfromhell parses; templates are not expanded, for their text is not in the page.
Links, galleries, tables and arguments of templates that name a file give its place. A file in the middle of
a paragraph stands before it, as MediaWiki floats it beside what follows.

An article's HTML as MediaWiki's REST interfaces give it: its paragraphs, and the pictures a reader sees in it.

Both interfaces give Parsoid's HTML (mediawiki.org/wiki/Specs/HTML): headings and what is below them are in `section`
elements, a picture is an `img` inside something whose `typeof` begins with `mw:File` (`mw:Image` before 2.5). What
stays of the text and what goes is the same as in wiki markup. Nothing is fetched here.
"""

import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink

from pipelines.sources.dom import language_of, parse
from pipelines.sources.html import decode_page
from pipelines.sources.records import FieldError
from pipelines.sources.source import is_language
from pipelines.sources.text import Paragraphs, absolute_url, check_work, count_unclosed, paragraphs_of
from schemas.failures import Reason
from schemas.tables import clean

_DROPPED_TAGS = frozenset(
    {
        "ref", "references", "table", "gallery", "math", "chem", "timeline", "score", "graph", "imagemap", "mapframe",
        "maplink", "hiero", "templatestyles", "syntaxhighlight", "source", "style", "script", "includeonly", "inputbox",
    }
)  # fmt: skip
_BREAKS = frozenset({"br", "hr", "li", "dd", "dt", "p", "div", "blockquote", "center", "ol", "ul", "dl"})
# A link with one of these before the colon shows a picture, files the page, or leads to another language or wiki.
_DROPPED_LINKS = re.compile(
    r"\s*(?:(?i:file|image|media|datei|bild|fichier|[ck]at[e\u00e9]gor\w*|\u043a\u0430\u0442\u0435\u0433\u043e\u0440\w*|\u5206[\u7c7b\u985e]|\u30ab\u30c6\u30b4\u30ea)"
    r"|simple|[a-z]{2,3}(?:-[a-z-]+)?)\s*:|\s*[^\s:]+\s*:[^|]*\.(?i:jpe?g|png|gif|svg|tiff?|webp|ogg|webm|pdf)\s*$"
)
# Switches, quotes of bold and italics that do not pair, signatures, what opens and never closes or closes what is not
# open, and rows of a table whose end is missing.
_LEFT_OVER = re.compile(
    r"__[A-Z]+__|'{2,}|~{3,5}|\[\[|\]\]|\{\{.*|\}\}|<!--.*|-->|^\s*(?:\{\||\||!\s).*|\|\}|^\s*=+.*?=+\s*$"
    r"|</?(?i:ref|gallery|div|span|small|center|table|tr|td|onlyinclude|noinclude)\b[^<>]*>?"
)
# The name of a file, up to its extension, from `[[File:`, `image =`, or the start of a gallery's line on.
_FILE = re.compile(r"(?:^|[:=|>\n])[ \t]*([^\[\]{}|<>#:=\n]{1,240}\.[A-Za-z]{3,4})[ \t]*(?=[\]}|<\n]|$)")
_REDIRECT = re.compile(r"\s*#(?:redirect\b|[^\W\d_]+\s*:?\s*\[\[)", re.IGNORECASE)  # the word is of the wiki's language
_CLOSINGS = {"}}": "{{", "]]": "[[", "|}": "{|", "]": "["}
_TOKEN = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\})|\[|\]|</?(?!(?:br|hr|li|dd|dt)\b)[a-z]+\b(?=[^<>]*+(?<!/)>)")
_MAX_WORK = 2e7  # a few seconds
_MAX_CHARACTERS = 2**21  # MediaWiki's own limit
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
class NamedFile:
    """A file that markup names, by its `file_key`."""

    key: str


def file_key(name: str) -> str:
    """Return what the spellings of a file's name have in common: `Great_auk.jpg`, `great auk.jpg`."""
    return " ".join(html.unescape(name).replace("_", " ").split()).casefold()


def strip_markup(wikitext: str) -> Paragraphs[NamedFile]:
    """Return the paragraphs of an article, in order, without markup, and the files between them; none of a redirect.

    A line break ends a paragraph, as it does for list items; text that wraps inside a template does not matter.

    Raises:
        FieldError: BROKEN_RECORD: it is too long, or has too much that never closes.
        ParserError: the markup cannot be parsed.
    """
    if _REDIRECT.match(wikitext):
        return Paragraphs(())
    if len(wikitext) > _MAX_CHARACTERS:
        raise FieldError(Reason.BROKEN_RECORD, f"expected at most {_MAX_CHARACTERS} characters, found {len(wikitext)}")
    found = _TOKEN.findall(wikitext.lower())
    tokens = (
        (_CLOSINGS.get(token, token.replace("/", "")), token[1:2] != "/" and token not in _CLOSINGS) for token in found
    )
    check_work(wikitext, limit=_MAX_WORK, unclosed=count_unclosed(tokens))
    return paragraphs_of(_visible(mwparserfromhell.parse(wikitext).nodes), lambda line: _LEFT_OVER.sub("", clean(line)))


def _visible(nodes: Iterable[Node]) -> Iterator[str | NamedFile]:
    """Yield the pieces of text that a reader sees, and the files; a line break where a block begins or ends."""
    for node in nodes:
        if isinstance(node, Text):
            yield str(node)
        elif isinstance(node, HTMLEntity):
            yield str(node.normalize())
        elif isinstance(node, Heading):
            yield "\n"
        elif isinstance(node, Wikilink):
            yield from _link(node)
        elif isinstance(node, ExternalLink):
            yield from _visible(node.title.nodes) if node.title else ()
        elif isinstance(node, Tag):
            yield from _tag(node)
        elif isinstance(node, Template):
            yield from _files(node)


def _files(node: Node) -> Iterator[NamedFile]:
    """Yield the files that markup without text names."""
    return (NamedFile(file_key(name)) for name in _FILE.findall(str(node)))


def _link(link: Wikilink) -> Iterator[str | NamedFile]:
    if _DROPPED_LINKS.match(str(link.title)):
        yield from _files(link)
        return
    shown = link.title if link.text is None else link.text
    text = "".join(piece for piece in _visible(shown.nodes) if isinstance(piece, str))
    yield text.removeprefix(":") if link.text is None else text


def _tag(tag: Tag) -> Iterator[str | NamedFile]:
    name = str(tag.tag).strip().lower()
    if name in _DROPPED_TAGS:
        yield from _files(tag)
        return
    edge = "\n" if name in _BREAKS else ""
    yield edge
    if tag.contents:
        yield from [str(tag.contents)] if name == "nowiki" else _visible(tag.contents.nodes)
        yield edge


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
    tree = parse(text)
    page, language = _fact(tree, ".//link[@rel='dc:isVersionOf']", "href"), language_of(tree)
    url = absolute_url(base_url, page) if page else ""
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
        page_id=_fact(tree, ".//meta[@property='mw:pageId']", "content"),
        url=url or None,
        language=language if language and is_language(language) else None,
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


def _fact(tree: Any, path: str, name: str) -> str | None:
    """Return an attribute of the first element at a path; None where it says nothing."""
    found = tree.find(path)
    return None if found is None else found.get(name) or None


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
