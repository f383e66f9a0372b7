"""Pages in WARC files, the project's own `raw/` or anyone's crawl: main text and pictures in the order of the page.

trafilatura (Barbaresi 2021) finds the main text, without navigation, advertisements and comments, and the pictures in
it; it follows `data-src` and `srcset`, and passes over addresses that do not end like a picture's. Paragraphs,
headings, list items and table cells are paragraphs here. A picture in a paragraph stands before its sentences.

A picture whose answer is in the same WARC is read from there; any other is fetched. A document's id is its page's URL.
Answers other than pages with status 200 are passed over. A page without a main text, or without a picture in it, is a
failure; so is one that says that it may not be used, unless the settings say otherwise.
"""

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.files import INSIDE, BrokenInputError
from pipelines.settings import HttpConfig
from pipelines.sources.corpora.compose import Picture, Piece, Reading, compose
from pipelines.sources.records import CandidateDocument, FieldError, on_web, outcomes_of
from pipelines.warc import Answer, read_answers
from pipelines.web.opt_outs import refusal
from pipelines.web.requests import FetchFailed, normalise
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata, plain_text
from schemas.tables import clean

_MAX_PAGE_BYTES = 16 * 2**20
_LANGUAGE = re.compile(rb"<html\b[^>]{0,2000}?\blang\s*=\s*[\"']?([A-Za-z-]{2,20})", re.IGNORECASE)
_PAGES = ("text/html", "application/xhtml+xml")
_INLINE = frozenset({"hi", "ref", "del", "graphic"})
Page = tuple[str, bytes]  # URL, body


def read_web(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a WARC file."""
    pictures = _pictures(shard, reading.address(shard))
    yield from outcomes_of(_pages(shard, reading), partial(_outcomes, reading=reading, pictures=pictures))


def _answers(shard: str) -> Iterator[Answer | BrokenInputError]:
    """Yield every answer with status 200, and what stands where there is no record."""
    return (found for found in read_answers(shard) if isinstance(found, BrokenInputError) or found.status == 200)


def _pictures(shard: str, address: str) -> dict[str, str]:
    """Return the place of each picture that was answered with, by its URL; a damaged file gives what comes before."""
    found: dict[str, str] = {}
    with contextlib.suppress(BrokenInputError):  # `_pages` says so
        for answer in _answers(shard):
            if isinstance(answer, Answer) and answer.media_type.startswith("image/"):
                found[_key(answer.url)] = f"{address}{INSIDE}{answer.offset}"
    return found


def _pages(shard: str, reading: Reading) -> Iterator[tuple[str, Page | FieldError]]:
    """Yield the pages of a WARC file under their URLs."""
    for answer in _answers(shard):
        if isinstance(answer, BrokenInputError):
            yield answer.record_id, FieldError(Reason.BROKEN_RECORD, str(answer))
        elif answer.media_type in _PAGES:
            name = PurePosixPath(shard).name
            yield answer.url or f"{name}:{answer.offset}", _page(answer, reading, name)


def _page(answer: Answer, reading: Reading, name: str) -> Page | FieldError:
    try:
        body = answer.body(_MAX_PAGE_BYTES)
    except ValueError as problem:
        return FieldError(Reason.BROKEN_RECORD, f"{name}: {problem}")
    if len(body) > _MAX_PAGE_BYTES:
        return FieldError(Reason.TOO_LARGE, f"{name}: a page of more than {_MAX_PAGE_BYTES} bytes")
    if reading.obey_opt_outs and (refused := refusal(answer.headers, body, HttpConfig(), now=time.time())) is not None:
        return FieldError(refused.reason, f"{name}: {refused.words}")
    return answer.url, body


def _outcomes(
    page: Page, record_id: str, *, reading: Reading, pictures: dict[str, str]
) -> Iterator[CandidateDocument | Failure]:
    url, body = page
    language = _LANGUAGE.search(body[:10_000])
    pieces = [_placed(piece, pictures) for piece in page_pieces(body, url)]
    code = language[1].decode() if language else None
    yield from compose(pieces, reading, record_id, url=url or None, language=code)


def page_pieces(body: bytes, url: str) -> list[Piece]:
    """Return the main text of a page and the pictures in it, in their order; nothing where there is no main text."""
    from trafilatura import bare_extraction

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a page without a main text is a failure row
    found = bare_extraction(
        body, url=url, include_images=True, include_comments=False, include_tables=True, with_metadata=False
    )
    return list(_walk(found.body)) if found is not None and found.body is not None else []


def _walk(element: Any) -> Iterator[Piece]:
    """Yield the text of an element, with line breaks around its paragraphs, and its pictures."""
    is_block = element.tag not in _INLINE
    if is_block:
        yield "\n"
    if element.tag == "graphic":
        source = (element.get("src") or "").strip()
        caption = plain_text(clean(element.get("alt") or ""))
        if on_web(source):
            yield Picture(source, metadata=Metadata(caption=caption) if caption else None)
    else:
        yield clean(element.text or "")
    for child in element:
        yield from _walk(child)
        yield clean(child.tail or "")
    if is_block:
        yield "\n"


def _placed(piece: Piece, pictures: dict[str, str]) -> Piece:
    """Return a picture at its place in the WARC, where it has one."""
    if isinstance(piece, str):
        return piece
    place = pictures.get(_key(piece.address))
    return piece if place is None else Picture(place, piece.address, metadata=piece.metadata)


def _key(url: str) -> str:
    try:
        return normalise(url.strip("<>"))
    except FetchFailed:
        return url
