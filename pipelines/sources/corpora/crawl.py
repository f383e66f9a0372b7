"""One index of the captures in all files of a crawl: what it has under an address, and whether that may be used.

    a page or a picture      the latest capture counts, by its date, whatever file it is in
    410, 404, 451 later      it is gone
    an opt-out               in any capture: it may not be used
    a redirect               is followed where its target is in the crawl, too
    a revisit                has the body of the capture that it names, else of one with its digest or its address

An index is of headers alone, and is kept by each process that reads the crawl.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pipelines.files import BrokenInputError
from pipelines.settings import HttpConfig
from pipelines.sources.records import FieldError
from pipelines.warc import Capture, read_captures
from pipelines.web.client import MAX_REDIRECTS
from pipelines.web.opt_outs import refusal
from pipelines.web.requests import FetchFailed, normalise, parse_target, reason_of_status, redirected
from schemas.failures import Reason

PAGES = ("text/html", "application/xhtml+xml")
_GONE = frozenset({404, 410, 451})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NEVER = ("text/css", "text/javascript", "application/javascript", "application/json", "font/", "video/", "audio/")


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
        self._entries.setdefault(_key(entry.url) or f"{entry.file}:{entry.offset}", []).append(entry)
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
            entries = self._entries.get(_key(target) or target, [])
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
        named = self._entries.get(_key(entry.location), []) if entry.location else []
        same = self._entries.get(_key(entry.url), [])
        by_digest = self._originals.get(entry.digest)
        candidates = [each for each in named if not entry.digest or each.digest == entry.digest]
        candidates += [by_digest] if by_digest else [each for each in reversed(same) if each.date <= entry.date]
        return next((each for each in candidates if each.status == 200 and not each.is_revisit), entry)


def crawl_of(files: Sequence[str], http: HttpConfig) -> Crawl:
    """Return the index of the files of a crawl; this process keeps the last one, as long as the files are the same."""
    states = []
    for file in files:
        with suppress(OSError):  # of a store, or not there
            state = Path(file).stat()
            states.append((state.st_size, state.st_mtime_ns))
    return _crawl(tuple(files), tuple(states), http, os.getpid())


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


def _key(url: str) -> str:
    try:
        return normalise(url)
    except FetchFailed:
        return url
