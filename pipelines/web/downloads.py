"""A whole file behind a URL, captured in the raw store: dumps and archives that are too large for memory.

    raw/files/<hh>/<key of the request>/<name>           the file, there once it is complete
    raw/files/<hh>/<key of the request>/<name>.part      what has come of it
    raw/files/<hh>/<key of the request>/<name>.json      what was answered: to go on by, then the record

What was interrupted goes on where it stopped (`Range` with `If-Range`, RFC 9110 13.1.5 and 14.2), unless the host does
not know ranges or has another file by now: then it starts anew. Robots, pace, retries, redirects and address checks are
those of every request; how much of a host's patience is used is `fetcher.py`'s.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from pipelines.settings import HttpConfig
from pipelines.web.captures import Request
from pipelines.web.errors import FetchFailed
from pipelines.web.exchange import PARTIAL, SUCCESSES
from pipelines.web.fetcher import Fetcher
from pipelines.web.retries import utc_text
from pipelines.web.targets import Target
from schemas.errors import BuildError
from schemas.failures import Reason
from schemas.lake import Folder

FILES = "files"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_UNSATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class CapturedFile:
    """A file as it was captured.

    Attributes:
        path: where it is.
        url: asked for, normalised.
        fetched_at: when it was complete, ISO 8601 in UTC.
    """

    path: Path
    url: str
    fetched_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What is kept beside a file: `fetched_at` is None until it is complete, `validator` says what a part is of."""

    final_url: str
    validator: str
    total_bytes: int | None
    fetched_at: str | None = None


def capture_file(
    request: Request, raw: Folder, fetcher: Fetcher, *, config: HttpConfig, clock: Callable[[], float]
) -> CapturedFile:
    """Return the file behind a URL; what of it is there is not asked for again.

    Raises:
        BuildError: the raw store is on no file system, or the disk does not take the file.
        FetchFailed: it cannot be had.
    """
    root = raw.local
    if root is None:
        raise BuildError(
            f"{request.url}: a file can be captured in a lake on a file system alone; give its path instead"
        )
    place = root / request.source / request.key[:2] / request.key / file_name(request.url)
    record = _read_record(place)
    if record is None or record.fetched_at is None or not place.is_file():
        record = _Part(place, max_bytes=config.max_file_bytes).complete(request, fetcher, config=config, clock=clock)
    return CapturedFile(place, request.url, str(record.fetched_at))


def file_name(url: str) -> str:
    """Return the last part of a URL's path as a plain file name: its ending says what kind of file it is."""
    name = _NOT_IN_NAMES.sub("_", unquote(PurePosixPath(urlsplit(url).path).name)).strip(".")
    return name[-100:] or "file"


class _Part:
    """A file under way; the sink of its requests."""

    def __init__(self, place: Path, *, max_bytes: int) -> None:
        self._place = place
        self._part = place.with_name(f"{place.name}.part")
        self._max_bytes = max_bytes
        self._stream: BinaryIO | None = None
        self._size = 0
        record = _read_record(place)
        is_known = record is not None and record.validator and self._part.is_file()
        self._record = record if is_known else None
        if self._record is not None:
            self._size = self._part.stat().st_size

    def complete(
        self, request: Request, fetcher: Fetcher, *, config: HttpConfig, clock: Callable[[], float]
    ) -> _Record:
        """Bring the rest and put the file in its place; return its record."""
        ends = clock() + config.file_timeout_s
        while not self._is_whole():
            before = self._size
            try:
                fetcher.fetch(request, {}, self)
                break
            except FetchFailed as problem:
                self._close()
                if problem.status == _UNSATISFIABLE and before:
                    self._forget()  # longer than the file: it is of another one
                elif self._size <= before or problem.reason is Reason.TOO_LARGE or clock() > ends:
                    raise
        self._close()
        whole = replace(cast(_Record, self._record), total_bytes=self._size, fetched_at=utc_text(clock()))
        self._part.replace(self._place)
        self._write_record(whole)
        return whole

    def _is_whole(self) -> bool:
        """Return whether nothing is missing: a process may be killed before it says so."""
        return self._record is not None and self._record.total_bytes == self._size

    def headers(self) -> Mapping[str, str]:
        """Return what asks for the rest alone; nothing where there is nothing yet."""
        self._close()
        if not self._size or self._record is None:
            return {}
        return {"Range": f"bytes={self._size}-", "If-Range": self._record.validator}

    def accepts(self, target: Target, status: int, fields: Mapping[str, str]) -> bool:
        """Return whether an answer has a body for the file, and prepare for it."""
        if status not in (*SUCCESSES, PARTIAL):
            return False
        if status != PARTIAL:
            self._forget()
        elif (start := _range_start(fields)) != self._size:
            self._forget()
            message = f"{target.url}: expected the bytes from {self._size} on, found them from {start} on"
            raise FetchFailed(Reason.TRUNCATED, message)
        announced = fields.get("content-length", "")
        total = self._size + int(announced) if announced.isdecimal() else None
        if total is not None and total > self._max_bytes:
            raise self._too_large(target.url, f"{total} bytes announced")
        known = self._record.validator if self._record else ""
        self._record = _Record(final_url=target.url, validator=_validator(fields) or known, total_bytes=total)
        self._open()
        return True

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        if self._size + len(piece) > self._max_bytes:
            raise self._too_large(cast(_Record, self._record).final_url, f"more than {self._max_bytes} bytes")
        try:
            cast(BinaryIO, self._stream).write(piece)
        except OSError as error:
            raise BuildError(f"{self._part}: cannot be written ({error.strerror})") from error
        self._size += len(piece)

    def _open(self) -> None:
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            if self._record is not None:
                self._write_record(self._record)
            self._stream = self._part.open("ab" if self._size else "wb")
        except OSError as error:
            raise BuildError(f"{self._part}: cannot be written ({error.strerror})") from error

    def _write_record(self, record: _Record) -> None:
        text = json.dumps(asdict(record), indent=1, sort_keys=True)
        Folder(str(self._place.parent)).write(_record_path(self._place).name, f"{text}\n".encode())

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None

    def _forget(self) -> None:
        self._close()
        self._size = 0
        self._record = None

    def _too_large(self, url: str, found: str) -> FetchFailed:
        message = f"{url}: {found}; http.max_file_bytes allows {self._max_bytes}"
        return FetchFailed(Reason.TOO_LARGE, message)


def _record_path(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def _read_record(place: Path) -> _Record | None:
    try:
        return _Record(**json.loads(_record_path(place).read_bytes()))
    except FileNotFoundError:
        return None


def _validator(fields: Mapping[str, str]) -> str:
    """Return what tells a file from its next edition: a strong ETag, else the date of its last change; or nothing."""
    etag = fields.get("etag", "")
    return etag if etag and not etag.startswith("W/") else fields.get("last-modified", "")


def _range_start(fields: Mapping[str, str]) -> int | None:
    found = _CONTENT_RANGE.fullmatch(fields.get("content-range", "").strip())
    return int(found[1]) if found else None
