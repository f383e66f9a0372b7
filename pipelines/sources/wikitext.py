"""Wiki markup becomes paragraphs of plain text, in the way a reader sees an article without its boxes and pictures.

What stays: running text, list items, and the words of links. What goes: templates (info boxes, citations), references,
tables, galleries and formulas, files with their captions (H: "not including captions"), categories, links to other
languages, comments, headings. mwparserfromhell parses; templates are not expanded, for their text is not in the page.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Text, Wikilink
from mwparserfromhell.parser import ParserError

from pipelines.sources.fields import clean

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
_PAIRS = (("{{", "}}"), ("[[", "]]"), ("{|", "|}"))
_MAX_UNCLOSED = 500  # the parser goes back once for each: thousands take it minutes


class WikitextError(ValueError):
    """A text that the parser gives up on."""


def strip_markup(wikitext: str, *, skip_sections: Collection[str] = ()) -> list[str]:
    """Return the paragraphs of an article, in order, without markup; none for a redirect.

    A line break ends a paragraph, as it does for list items; text that wraps inside a template does not matter.

    Args:
        wikitext: source of the page.
        skip_sections: headings, compared without case, whose sections (with those below them) are left out.

    Raises:
        WikitextError: the markup cannot be parsed.
    """
    if _REDIRECT.match(wikitext):
        return []
    for opening, closing in _PAIRS:
        unclosed = wikitext.count(opening) - wikitext.count(closing)
        if unclosed > _MAX_UNCLOSED:
            raise WikitextError(f"expected wiki markup, found {unclosed} {opening!r} that never close")
    skipped = {heading.casefold() for heading in skip_sections}
    try:
        nodes = mwparserfromhell.parse(wikitext).nodes
        text = "".join(_visible(_outside(nodes, skipped)))
    except (ParserError, RecursionError) as error:
        raise WikitextError(f"expected wiki markup: {error}") from error
    lines = (" ".join(_LEFT_OVER.sub("", clean(line)).split()) for line in text.split("\n"))
    return [line for line in lines if line]


def _outside(nodes: Iterable[Node], skipped: Collection[str]) -> Iterator[Node]:
    """Yield the nodes that are in none of the skipped sections."""
    level: int | None = None
    for node in nodes:
        if isinstance(node, Heading) and (level is None or node.level <= level):
            title = " ".join("".join(_visible(node.title.nodes)).split())
            level = node.level if title.casefold() in skipped else None
        if level is None:
            yield node


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
    if _DROPPED_LINKS.match(str(link.title)):
        return
    shown = link.text if link.text is not None else link.title
    pieces = "".join(_visible(shown.nodes))
    yield pieces.removeprefix(":") if link.text is None else pieces


def _tag(tag: Tag) -> Iterator[str]:
    name = str(tag.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return
    if name in _BREAKS:
        yield "\n"
    if tag.contents and name != "nowiki":
        yield from _visible(tag.contents.nodes)
    elif tag.contents:
        yield str(tag.contents)
    if name in _BREAKS:
        yield "\n" if tag.contents else ""
