"""A user's own pages as documents: HTML as it stands, Markdown and the chapters of EPUB as the HTML that they become.

    posts/cat.html                        a document, posts/cat.html
    notes/cat.md                          a document, notes/cat.md, or `id` of its front matter (YAML or TOML)
    book.epub: OEBPS/ch1.xhtml, ch2 ..    a document a chapter that has a picture, book.epub!/OEBPS/ch1.xhtml

A page is read whole, by the one reader of HTML. A picture's address is relative to its page, or to the root where it
begins with a slash; it leads to nothing outside the root (`pipelines.named_files`), a book's to nothing outside the
book.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml
from lxml import etree

from pipelines.embedded import Span, on_web
from pipelines.files import DAMAGE, INSIDE, MAX_FILE_BYTES, BrokenInputError
from pipelines.sources.corpora.compose import Piece, Reading, compose
from pipelines.sources.fields import Object, identifier, split_named, text_or_none, typed
from pipelines.sources.html import PagePicture, decode_page, read_page
from pipelines.sources.own_files import Kind, OwnFile
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, file_name, rejected, unusable
from schemas.documents import UNDETERMINED
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT = re.compile(r"\ufeff?(---|\+\+\+)[ \t]*\r?\n(.*?)(?:^|\n)(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# Pictures as Obsidian and Hugo write them, and what Jekyll writes before the address of one.
_EMBEDDED = re.compile(r"!\[\[([^\]|]+)(?:\|(?:[\dx]+|([^\]]*)))?\]\]")
_FIGURE = re.compile(r"\{\{[<%]\s*figure\s(.*?)[>%]\}\}", re.DOTALL)
_ATTRIBUTE = re.compile(r"\b(src|alt|caption)=[\"']([^\"']*)[\"']")
_LIQUID = re.compile(r"\{\{\s*(?:site\.(?:base)?url|[\"']([^\"'{}]*)[\"']\s*\|\s*(?:relative|absolute)_url)\s*\}\}")
_CONTAINER = "META-INF/container.xml"
_HTML_TYPES = ("application/xhtml+xml", "text/html")
_UTF8 = "text/html; charset=utf-8"
Outcomes = Iterator[CandidateDocument | Failure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page is, and what is there.

    Attributes:
        reading: settings of the reader.
        root: path or URI of the folder or archive.
        below: what leads from the root of pictures to that of pages; "": they are one; None: nothing does.
        has: whether a picture may be at a name below the root of pictures.
        by_last_name: files that no other has the last name of, by that.
        url: of the folder of the pages on the web, where addresses are URLs; "": they are names below the root.
    """

    reading: Reading
    root: str
    below: str | None = ""
    has: Callable[[str], bool]
    by_last_name: Mapping[str, str] = field(default_factory=dict)
    url: str = ""


def read_pages(file: OwnFile, data: bytes, place: Place) -> Outcomes:
    """Yield the document of a page, or of each chapter of a book, or why there is none.

    Raises:
        FieldError: the page's front matter cannot be read.
        BrokenInputError: it is no book.
    """
    if file.kind is Kind.EPUB:
        yield from _chapters(file, data, place)
    elif file.kind is Kind.MARKDOWN:
        yield from _markdown(file, data, place)
    else:
        yield from _document(file.name, data, place)


def _document(
    name: str,
    data: bytes,
    place: Place,
    *,
    about: Mapping[str, Any] | None = None,
    book: str = "",
    content_type: str | None = None,
    file: bytes = b"",
) -> Outcomes:
    """Yield the document of a page of HTML.

    Args:
        name: of the page below the root; of a chapter, below its book.
        data: of the page.
        place: where it is.
        about: what its front matter or its book says of it.
        book: name of the book below the root.
        content_type: where it is known how the page is encoded.
        file: that the page was made of; empty: it is as it stands.
    """
    page = read_page(
        data, place.url and f"{place.url}{name}", content_type=content_type, language=_language(place), is_whole=True
    )
    about, below = about or {}, place.below or ""
    folder, prefix = posixpath.dirname(name), f"{posixpath.join(below, book)}{INSIDE}" if book else ""
    folder, own = (folder, name) if book else (posixpath.join(below, folder), posixpath.join(below, name))
    pieces: list[Piece] = []
    for piece in page.pieces:
        if isinstance(piece, PagePicture):
            caption = Metadata(caption=piece.caption) if piece.caption else None
            is_inline = piece.addresses[0].lstrip().lower().startswith("data:")
            found = (
                _inline(piece, f"{prefix}{own}", file or data) if is_inline else _address(piece, folder, prefix, place)
            )
            if place.below is None and (is_inline or book) and not on_web(found):
                found = unusable(FieldError(Reason.FORBIDDEN, f"in {book or name}, which is outside source.images"))
            pieces.append(CandidateImage(found, None, _licence(about), caption))
        else:
            pieces.append(f"{piece}\n")
    title = " ".join((text_or_none(about, "title") or "").split())
    if title and f"{title}\n" not in pieces[:1]:
        pieces.insert(0, f"{title}\n")
    url = text_or_none(about, "url")
    for outcome in compose(
        pieces,
        place.reading,
        identifier(about) if about.get("id") is not None else f"{book}{INSIDE}{name}" if book else name,
        url=url if url and on_web(url) else None,
        language=text_or_none(about, "language") or text_or_none(about, "lang") or page.language,
    ):
        if isinstance(outcome, CandidateDocument):
            licensed = replace(outcome.provenance, licence=_licence(about))
            yield replace(outcome, provenance=licensed, split=split_named(text_or_none(about, "split")))
        else:
            yield outcome


def _language(place: Place) -> str:
    """Return the language of pages that state none; empty: it is not known."""
    return str(place.reading.source.language).removeprefix(UNDETERMINED)


def _licence(about: Mapping[str, Any]) -> str | None:
    return (text_or_none(about, "licence") or text_or_none(about, "license") or "").strip() or None


def _inline(picture: PagePicture, page: str, data: bytes) -> str:
    """Return the address of a picture that stands in a page in base64."""
    text = picture.addresses[0].partition(",")[2].strip().encode()
    begin = data.find(text)
    if begin < 0 or not text:
        return unusable(FieldError(Reason.BROKEN_RECORD, "expected base64 in one piece in a data: address"))
    return str(Span(page, begin, len(text), is_base64=True))


def _address(picture: PagePicture, folder: str, prefix: str, place: Place) -> str:
    """Return where a picture of a page is: the first of its addresses that is there, or else its first.

    A file beside the page is there before a copy on the web is, from which a browser saved it.
    """
    root = "" if prefix else place.root
    names = [name for address in picture.addresses for name in _names(address, folder, root)]
    found = sorted(names, key=on_web) if "://" not in root else names
    name = next((each for each in found if on_web(each) or place.has(f"{prefix}{each}")), (*names, "")[0])
    try:
        return name if on_web(name) else f"{prefix}{file_name(name, 'a picture')}"
    except FieldError as problem:
        return unusable(problem)


def _names(address: str, folder: str, root: str) -> Iterator[str]:
    """Yield what an address of a page may mean: a URL, or paths below the root: without its query, and as it stands."""
    if on_web(address) or address.startswith("//"):
        yield f"https:{address}" if address.startswith("//") else address
        return
    address = address.removeprefix("file://")
    try:
        path = unquote(urlsplit(address).path) if "://" not in address and not address.startswith("data:") else address
    except ValueError:
        path = address
    for each in dict.fromkeys(name.replace("\\", "/") for name in (path, address)):
        if each.startswith("/"):
            yield each.removeprefix(f"{root.rstrip('/')}/") if root else each.lstrip("/")
            yield each.lstrip("/")
        elif ":" in each.partition("/")[0]:
            yield each
        elif each:
            yield posixpath.normpath(posixpath.join(folder, each))


def _markdown(file: OwnFile, data: bytes, place: Place) -> Outcomes:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = decode_page(data, language=_language(place)).text
    text = text.replace("\r\n", "\n")
    found = _FRONT.match(text)
    about = {} if found is None else _front_matter(found[1], found[2])
    body = _FIGURE.sub(_figure, _LIQUID.sub(r"\1", text[found.end() if found and about is not None else 0 :]))
    body = _EMBEDDED.sub(partial(_embedded, folder=posixpath.dirname(file.name), place=place), body)
    html = _commonmark().render(body)
    yield from _document(file.name, html.encode(), place, about=about, content_type=_UTF8, file=data)


def _embedded(match: re.Match[str], folder: str, place: Place) -> str:
    """Return what Obsidian embeds: a file by its path from the page or the root, or else by its last name."""
    name = match[1].strip()
    last = place.by_last_name.get(posixpath.basename(name), name)
    if not place.has(posixpath.join(folder, name)) and place.has(last):
        name = f"/{last}"
    return f"![{match[2] or ''}](<{name}>)"


def _figure(match: re.Match[str]) -> str:
    said = dict(_ATTRIBUTE.findall(match[1]))
    return f"![{said.get('caption') or said.get('alt', '')}](<{said.get('src', '')}>)"


def _front_matter(fence: str, text: str) -> dict[str, Any] | None:
    """Return the fields of a page's front matter, of YAML as they are written; None: it is text between two rules.

    Raises:
        FieldError: BROKEN_RECORD: it cannot be read.
    """
    try:
        found = yaml.load(text, yaml.BaseLoader) if fence == "---" else tomllib.loads(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        message = " ".join(str(problem).split())
        raise FieldError(Reason.BROKEN_RECORD, f"front matter: {message}") from problem
    if isinstance(found, str) and found:
        return None
    fields = typed(found or {}, Object, "front matter")
    return {name: value for name, value in fields.items() if value not in ("", "~", "null")}


@lru_cache(1)
def _commonmark() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True}).enable("table")


def _chapters(file: OwnFile, data: bytes, place: Place) -> Outcomes:
    """Yield the documents of a book, in the order in which it is read (its `spine`)."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as book:
            package, root = _package(book)
            about = {"language": _said(root, "language"), "licence": _said(root, "rights")}
            prefix, folder = f"{posixpath.join(place.below or '', file.name)}{INSIDE}", posixpath.dirname(package)
            there = {f"{prefix}{name}" for name in book.namelist()}
            inside = replace(place, has=there.__contains__, by_last_name={}, url="")
            pages = {
                item.get("id"): unquote(item.get("href", ""))
                for item in root.iter("{*}item")
                if item.get("media-type") in _HTML_TYPES
            }
            for item in root.iter("{*}itemref"):
                if (href := pages.get(item.get("idref"))) is not None:
                    name = posixpath.normpath(posixpath.join(folder, href))
                    try:
                        with book.open(name) as stream:
                            chapter = stream.read(MAX_FILE_BYTES)
                    except (*DAMAGE, KeyError) as problem:
                        message = f"expected a chapter: {problem}"
                        yield rejected(f"{file.name}{INSIDE}{name}", Reason.BROKEN_RECORD, message)
                    else:
                        yield from _document(name, chapter, inside, about=about, book=file.name)
    except (*DAMAGE, KeyError, etree.LxmlError) as problem:
        raise BrokenInputError(f"{file.name}: expected an EPUB: {problem}", file.name) from problem


def _package(book: zipfile.ZipFile) -> tuple[str, Any]:
    """Return the name of a book's package document, and its root element."""
    name = next((each.get("full-path") for each in _xml(book.read(_CONTAINER)).iter("{*}rootfile")), None)
    if name is None:
        raise KeyError(f"{_CONTAINER} names no package")
    return name, _xml(book.read(name))


def _xml(data: bytes) -> Any:
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))


def _said(root: Any, name: str) -> str | None:
    found = root.find(f".//{{*}}{name}")
    return None if found is None else found.text
