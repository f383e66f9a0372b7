"""Pages of a crawl in WARC files, anyone's: main text and pictures in the order of the page (`sources/html.py`).

All files of the source are one crawl (`crawl.py`): the latest capture of a page counts, a picture may be in another
file, behind a redirect or a revisit. A picture that the crawl has is read from there; any other is fetched. Pages and
pictures are judged as answers that are fetched are, by the build's own settings of `http`. A document's id is its
page's URL. A page without a main text, or without a picture in it, is a failure.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from pipelines.embedded import on_web
from pipelines.files import INSIDE
from pipelines.sources.corpora.compose import Piece, Reading, compose
from pipelines.sources.corpora.crawl import Crawl, Entry, crawl_of
from pipelines.sources.html import Page, PagePicture, read_page
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, unusable
from pipelines.warc import read_body
from pipelines.web.opt_outs import refusal
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata

_LOG = logging.getLogger(__name__)
_MAX_PAGE_BYTES = 16 * 2**20


def read_web(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a WARC file.

    Raises:
        BrokenInputError: the file cannot be read on, or has no capture; documents yielded before stay good.
    """
    crawl = crawl_of(reading.files or (shard,), reading.http)
    guessed = list[str]()
    pages = _pages(shard, crawl, reading)
    yield from outcomes_of(pages, partial(_outcomes, crawl=crawl, reading=reading, guessed=guessed))
    if guessed:
        _LOG.warning("%s: guessed the character set of %d pages, such as %s", shard, len(guessed), guessed[0])
    if shard in crawl.problems:
        raise crawl.problems[shard]


def _pages(shard: str, crawl: Crawl, reading: Reading) -> Iterator[tuple[str, tuple[Entry, bytes] | FieldError]]:
    """Yield what each page of a file is read from, under its URL; and of an earlier capture, that it is one."""
    for address, entries in crawl.pages(shard):
        found = crawl.find(address, is_page=True)
        url = next((each.url for each in reversed(entries) if each.url), address)
        if isinstance(found, Entry):
            page = _judged(found, entries, reading)
            yield url, page
            digests = {each.digest for each in entries if each.status == 200 and each.is_page and not each.is_revisit}
            for _ in () if isinstance(page, FieldError) else digests - {found.digest}:
                yield url, FieldError(Reason.DUPLICATE_RECORD, f"another capture of it is later: {found.date}")
        else:
            message = f"{PurePosixPath(shard).name}: no capture has its body"
            yield url, found or FieldError(Reason.BROKEN_RECORD, message)


def _judged(found: Entry, entries: Sequence[Entry], reading: Reading) -> tuple[Entry, bytes] | FieldError:
    """Return the latest body of a page that can be read, or why it may not be used, as any capture of it says."""
    others = [each for each in reversed(entries) if each.status == 200 and each.is_page and not each.is_revisit]
    differ = (each for each in others if each is not found and (each.digest != found.digest or not each.digest))
    bodies = [(each, _body(each)) for each in (found, *differ)]
    for each, body in bodies:
        if isinstance(body, bytes) and (refused := refusal({}, body, reading.http, now=time.time())) is not None:
            return FieldError(refused.reason, f"{PurePosixPath(each.file).name}: {refused.words}")
    readable = ((each, body) for each, body in bodies if isinstance(body, bytes))
    problem = bodies[0][1]
    return next(readable, problem if isinstance(problem, FieldError) else (found, problem))


def _body(entry: Entry) -> bytes | FieldError:
    name = PurePosixPath(entry.file).name
    try:
        body = read_body(entry.file, entry.offset, _MAX_PAGE_BYTES)
    except ValueError as problem:
        return FieldError(Reason.BROKEN_RECORD, f"{name}: {problem}")
    if len(body) > _MAX_PAGE_BYTES:
        return FieldError(Reason.TOO_LARGE, f"{name}: a page of more than {_MAX_PAGE_BYTES} bytes")
    return body


def _outcomes(
    captured: tuple[Entry, bytes], record_id: str, *, crawl: Crawl, reading: Reading, guessed: list[str]
) -> Iterator[CandidateDocument | Failure]:
    entry, body = captured
    page = read_page(body, record_id, content_type=entry.content_type)
    if page.is_charset_guessed:
        guessed.append(record_id)
    url = record_id if on_web(record_id) else None
    for outcome in compose(_pieces(page, crawl, reading), reading, record_id, url=url, language=page.language):
        if isinstance(outcome, Failure):
            how = f"; its character set was guessed: {page.charset}" if page.is_charset_guessed else ""
            yield replace(outcome, message=f"{outcome.message}; the page has {page.images} images{how}")
        else:
            yield outcome


def _pieces(page: Page, crawl: Crawl, reading: Reading) -> Iterator[Piece]:
    for piece in page.pieces:
        yield f"{piece}\n" if isinstance(piece, str) else _picture(piece, crawl, reading)


def _picture(picture: PagePicture, crawl: Crawl, reading: Reading) -> CandidateImage:
    """Return a picture where the crawl has it: of its addresses, the first that may be used, else the first at all."""
    metadata = Metadata(caption=picture.caption) if picture.caption else None
    refused: CandidateImage | None = None
    for address in picture.addresses:
        found = crawl.find(address)
        if isinstance(found, Entry):
            place = f"{reading.address(found.file)}{INSIDE}{found.offset}"
            return CandidateImage(place, address, metadata=metadata)
        if found is not None and refused is None:
            refused = CandidateImage(unusable(found), address, metadata=metadata)
    return refused or CandidateImage(picture.addresses[0], metadata=metadata)
