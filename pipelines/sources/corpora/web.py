"""Pages of a crawl in WARC files, anyone's: main text and pictures in the order of the page (`sources/html.py`).

An index of the captures in all files of a crawl: what it has under an address, and whether that may be used.

    a page or a picture      the latest capture counts, by its date, whatever file it is in
    410, 404, 451 later      it is gone
    an opt-out               in any capture: it may not be used
    a redirect               is followed where its target is in the crawl, too
    a revisit                has the body of the capture that it names, else of one with its digest or its address

An index is of headers alone, and is kept by each process that reads the crawl.

All files of the source are one crawl: the latest capture of a page counts, a picture may be in another
file, behind a redirect or a revisit. A picture that the crawl has is read from there; any other is fetched. Pages and
pictures are judged as answers that are fetched are, by the build's own settings of `http`. A document's id is its
page's URL. A page without a main text, or without a picture in it, is a failure.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import PurePosixPath

from pipelines.embedded import on_web
from pipelines.files import INSIDE, BrokenInputError
from pipelines.settings import HttpConfig
from pipelines.sources.corpora.compose import Piece, Reading, compose
from pipelines.sources.html import Page, PagePicture, read_page
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, unusable
from pipelines.warc import Capture, read_body, read_captures
from pipelines.web.client import MAX_REDIRECTS
from pipelines.web.opt_outs import refusal
from pipelines.web.requests import FetchFailed, parse_target, reason_of_status, redirected, spelling_of
from schemas.failures import Failure, Reason
from schemas.lake import folder_of
from schemas.metadata import Metadata

PAGES = ("text/html", "application/xhtml+xml")
_GONE = frozenset({404, 410, 451})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NEVER = ("text/css", "text/javascript", "application/javascript", "application/json", "font/", "video/", "audio/")
_LOG = logging.getLogger(__name__)
_MAX_PAGE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A capture, as far as the index needs it.

    Attributes:
        content_type: of its body, as it was answered.
        location: of a redirect, where it leads; of a revisit, the URL of its original.
        refused: why it may not be used, by its headers.
    """

    file: str
    offset: int
    url: str
    date: str
    status: int
    content_type: str
    location: str
    digest: str
    is_revisit: bool
    refused: FieldError | None

    @property
    def is_page(self) -> bool:
        """Return whether it is HTML."""
        return self.content_type.partition(";")[0].strip().lower() in PAGES

    @property
    def is_gone(self) -> bool:
        """Return whether it says that what was there is there no more."""
        return self.status in _GONE


class Crawl:
    """The captures of a crawl.

    Attributes:
        problems: of each file that cannot be read to its end, or has no capture, why.
    """

    def __init__(self, files: Sequence[str], http: HttpConfig) -> None:
        self.problems: dict[str, BrokenInputError] = {}
        self._entries: dict[str, list[Entry]] = {}
        self._originals: dict[str, Entry] = {}  # by digest
        now = time.time()
        for file in files:
            for capture in read_captures(file):
                if isinstance(capture, BrokenInputError):
                    self.problems[file] = capture
                elif not capture.media_type.startswith(_NEVER):
                    self._add(_entry(capture, file, http, now))
        for entries in self._entries.values():
            entries.sort(key=lambda each: (each.date, each.is_gone, each.file, each.offset))
        self._pages: dict[str, list[tuple[int, str]]] = {}
        for key, entries in self._entries.items():
            last = next((each for each in reversed(entries) if each.status == 200 and self._body(each).is_page), None)
            if last is not None:
                self._pages.setdefault(last.file, []).append((last.offset, key))

    def _add(self, entry: Entry) -> None:
        self._entries.setdefault(spelling_of(entry.url) or f"{entry.file}:{entry.offset}", []).append(entry)
        if entry.digest and entry.status == 200 and not entry.is_revisit:
            self._originals.setdefault(entry.digest, entry)

    def pages(self, file: str) -> Iterator[tuple[str, list[Entry]]]:
        """Yield the address of each page whose last capture as such is in a file, and all its captures by date."""
        for _, key in sorted(self._pages.get(file, ())):
            yield key, self._entries[key]

    def find(self, address: str, *, is_page: bool = False) -> Entry | FieldError | None:
        """Return the capture that has the body of an address, why it may not be used, or None: it is not there.

        Args:
            address: of a page or a picture.
            is_page: whether redirects are left out: a page that leads elsewhere by now was captured there.
        """
        target = address
        for _ in range(MAX_REDIRECTS):
            entries = self._entries.get(spelling_of(target) or target, [])
            if (refused := next((each.refused for each in entries if each.refused), None)) is not None:
                return refused
            last = next((each for each in reversed(entries) if self._counts(each, is_page=is_page)), None)
            if last is None:
                return None
            if last.is_gone:
                name = PurePosixPath(last.file).name
                reason = Reason.DELETED_RECORD if is_page else reason_of_status(last.status)
                return FieldError(reason, f"{name}: status {last.status} on {last.date or 'an unknown day'}")
            if last.status == 200:
                return self._body(last)
            target = _redirected(target, last.location)
        return None

    def _counts(self, entry: Entry, *, is_page: bool) -> bool:
        if entry.status == 200:
            return not self._body(entry).is_revisit
        return entry.is_gone or (entry.status in _REDIRECTS and not is_page)

    def _body(self, entry: Entry) -> Entry:
        """Return the capture that has the body of a capture; the revisit itself where its original is not there."""
        if not entry.is_revisit:
            return entry
        named = self._entries.get(spelling_of(entry.location), []) if entry.location else []
        same = self._entries.get(spelling_of(entry.url), [])
        by_digest = self._originals.get(entry.digest)
        candidates = [each for each in named if not entry.digest or each.digest == entry.digest]
        candidates += [by_digest] if by_digest else [each for each in reversed(same) if each.date <= entry.date]
        return next((each for each in candidates if each.status == 200 and not each.is_revisit), entry)


def crawl_of(files: Sequence[str], http: HttpConfig) -> Crawl:
    """Return the index of the files of a crawl; this process keeps the last one, as long as the files are the same."""
    states = tuple(folder.stamp(name) for folder, name in map(folder_of, files))
    return _crawl(tuple(files), states, http, os.getpid())


@lru_cache(maxsize=1)
def _crawl(files: tuple[str, ...], _states: tuple[tuple[int, int], ...], http: HttpConfig, _process: int) -> Crawl:
    return Crawl(files, http)


def _entry(capture: Capture, file: str, http: HttpConfig, now: float) -> Entry:
    refused = refusal(capture.headers, b"", http, now=now)
    name = PurePosixPath(file).name
    is_revisit = capture.original is not None
    return Entry(
        file,
        capture.offset,
        capture.url,
        capture.date,
        200 if is_revisit and capture.status in (0, 304) else capture.status,
        capture.headers.get("content-type", ""),
        capture.original or capture.headers.get("location", ""),
        capture.digest,
        is_revisit,
        None if refused is None else FieldError(refused.reason, f"{name}: {refused.words}"),
    )


def _redirected(address: str, location: str) -> str:
    with suppress(FetchFailed):
        return redirected(parse_target(address), location).url
    return ""


def read_web(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a WARC file.

    Raises:
        BrokenInputError: the file cannot be read on, or has no capture; documents yielded before stay good.
    """
    crawl = crawl_of(reading.source.documents, reading.http)
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
    bodies = [(each, _page_body(each)) for each in (found, *differ)]
    for each, body in bodies:
        if isinstance(body, bytes) and (refused := refusal({}, body, reading.http, now=time.time())) is not None:
            return FieldError(refused.reason, f"{PurePosixPath(each.file).name}: {refused.words}")
    readable = ((each, body) for each, body in bodies if isinstance(body, bytes))
    problem = bodies[0][1]
    return next(readable, problem if isinstance(problem, FieldError) else (found, problem))


def _page_body(entry: Entry) -> bytes | FieldError:
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
