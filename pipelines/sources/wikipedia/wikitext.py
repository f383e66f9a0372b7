"""Wiki markup becomes paragraphs of plain text, in the way a reader sees an article without its boxes and pictures.

What stays: running text, list items, and the words of links. What goes: templates (info boxes, citations), references,
tables, galleries and formulas, files with their captions (H: "not including captions"), categories, links to other
languages, comments, headings. mwparserfromhell parses; templates are not expanded, for their text is not in the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Text, Wikilink

from pipelines.sources.records import FieldError, clean
from pipelines.sources.text import check_work, count_unclosed
from schemas.failures import Reason

_DROPPED_TAGS = frozenset(
    {
        "ref", "references", "table", "gallery", "math", "chem", "timeline", "score", "graph", "imagemap", "mapframe",
        "maplink", "hiero", "templatestyles", "syntaxhighlight", "source", "style", "script", "includeonly", "inputbox",
    }
)  # fmt: skip
_BREAKS = frozenset({"br", "hr", "li", "dd", "dt", "p", "div", "blockquote", "center", "ol", "ul", "dl"})
# A link with one of these before the colon shows a picture, files the page, or leads to another language or wiki.
_DROPPED_LINKS = re.compile(
    r"\s*(?:(?i:file|image|media|category|datei|bild|kategorie|fichier|cat\u00e9gorie)|simple|[a-z]{2,3}(?:-[a-z-]+)?)\s*:"
)
_LEFT_OVER = re.compile(r"__[A-Z]+__|'{2,}")  # switches, and quotes of bold and italics that do not pair
_REDIRECT = re.compile(r"\s*#(?:redirect|weiterleitung|redirection)\b", re.IGNORECASE)
_CLOSINGS = {"}}": "{{", "]]": "[[", "|}": "{|", "]": "["}
_TOKEN = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\})|\[|\]|</?(?!(?:br|hr|li|dd|dt)\b)[a-z]+\b(?=[^<>]*+(?<!/)>)")
_MAX_WORK = 2e7  # a few seconds
_MAX_CHARACTERS = 2**21  # MediaWiki's own limit


def strip_markup(wikitext: str) -> list[str]:
    """Return the paragraphs of an article, in order, without markup; none for a redirect.

    A line break ends a paragraph, as it does for list items; text that wraps inside a template does not matter.

    Raises:
        FieldError: BROKEN_RECORD: it is too long, or has too much that never closes.
        ParserError: the markup cannot be parsed.
    """
    if _REDIRECT.match(wikitext):
        return []
    if len(wikitext) > _MAX_CHARACTERS:
        raise FieldError(Reason.BROKEN_RECORD, f"expected at most {_MAX_CHARACTERS} characters, found {len(wikitext)}")
    found = _TOKEN.findall(wikitext.lower())
    tokens = (
        (_CLOSINGS.get(token, token.replace("/", "")), token[1:2] != "/" and token not in _CLOSINGS) for token in found
    )
    check_work(wikitext, limit=_MAX_WORK, unclosed=count_unclosed(tokens))
    text = "".join(_visible(mwparserfromhell.parse(wikitext).nodes))
    lines = (" ".join(_LEFT_OVER.sub("", clean(line)).split()) for line in text.split("\n"))
    return [line for line in lines if line]


def _visible(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the pieces of text that a reader sees; a line break where a block begins or ends."""
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


def _link(link: Wikilink) -> Iterator[str]:
    if not _DROPPED_LINKS.match(str(link.title)):
        shown = link.title if link.text is None else link.text
        text = "".join(_visible(shown.nodes))
        yield text.removeprefix(":") if link.text is None else text


def _tag(tag: Tag) -> Iterator[str]:
    name = str(tag.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return
    edge = "\n" if name in _BREAKS else ""
    yield edge
    if tag.contents:
        yield from [str(tag.contents)] if name == "nowiki" else _visible(tag.contents.nodes)
        yield edge
