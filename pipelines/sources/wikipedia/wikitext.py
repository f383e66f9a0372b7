"""Wiki markup becomes paragraphs of plain text, in the way a reader sees an article without its boxes and pictures.

What stays: running text, list items, and the words of links. What goes: templates (info boxes, citations), references,
tables, galleries and formulas, files with their captions (H: "not including captions"), categories, links to other
languages, comments, headings. mwparserfromhell parses; templates are not expanded, for their text is not in the page.
Links, galleries, tables and arguments of templates that name a file give its place. A file in the middle of
a paragraph stands before it, as MediaWiki floats it beside what follows.
"""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink

from pipelines.sources.records import FieldError
from pipelines.sources.text import Paragraphs, check_work, count_unclosed, paragraphs_of
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
