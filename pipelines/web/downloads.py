"""A whole file behind a URL, kept on disk: dumps and archives that are too large for memory, and for a WARC segment.

    raw/files/<hh>/<key of the request>/<name>           the file, there once it is complete
    raw/files/<hh>/<key of the request>/<name>.part      what has come of it
    raw/files/<hh>/<key of the request>/<name>.json      what was answered: to go on by, then the record

These are the exception to `pipelines/raw/`: plain files that their readers open by path. What was interrupted goes on
where it stopped (`Range` with `If-Range`, RFC 9110 13.1.5 and 14.2), unless the host does not know ranges or has
another file by now: then it starts anew. A file older than `http.listing_max_age_s` is asked about again, and fetched
again only where its host has another one. One process at a time fetches a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from pipelines.web.answers import FILE_TIMEOUT_S, posix_time, utc_text
from pipelines.web.errors import FetchFailed
from pipelines.web.requests import Kind, Request
from pipelines.web.transport import SUCCESSES
from pipelines.web.urls import Target
from schemas.errors import BuildError
from schemas.failures import TRANSIENT, Reason
from schemas.lake import Folder

if TYPE_CHECKING:
    from pipelines.web.client import Client

FILES = "files"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})")
_PARTIAL, _NOT_MODIFIED, _UNSATISFIABLE = 206, 304, 416


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
    """What is kept beside a file or a part of one: which edition it is of, and when it was complete and checked."""

    final_url: str
    etag: str = ""
    last_modified: str = ""
    total_bytes: int | None = None
    fetched_at: str = ""
    checked_at: str = ""

    @property
    def validator(self) -> str:
        """Return what tells a file from its next edition: a strong ETag, else the date of its last change."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.last_modified

    def is_edition_of(self, other: _Record | None) -> bool:
        """Return whether two records are surely of one edition."""
        mine = (self.etag, self.last_modified, self.total_bytes)
        return other is not None and any(mine[:2]) and mine == (other.etag, other.last_modified, other.total_bytes)


def capture_file(client: Client, url: str) -> CapturedFile:
    """Return the file behind a URL; what of it is there is not asked for again.

    Raises:
        BuildError: the raw store is on no file system, or the disk does not take the file.
        FetchFailed: it cannot be had; what came of it is kept, and the next call goes on from there.
    """
    task = client.begin(Request(url, FILES, Kind.FILE))
    root = client.raw.local
    if root is None:
        raise BuildError(f"{url}: a file can be captured in a lake on a file system alone; give its path instead")
    path = root / FILES / task.key[:2] / task.key / file_name(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        record = _Download(client, url, path).complete()
    return CapturedFile(path, task.target.url, record.fetched_at)


def file_name(url: str) -> str:
    """Return the last part of a URL's path as a plain file name: its ending says what kind of file it is."""
    name = _NOT_IN_NAMES.sub("_", unquote(PurePosixPath(urlsplit(url).path).name)).strip(".")
    return name[-100:] or "file"


class _Download:
    """A file under way; the sink of its requests."""

    def __init__(self, client: Client, url: str, path: Path) -> None:
        self._client = client
        self._url = url
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._stream: BinaryIO | None = None
        self._is_current = False
        record = self._read_record()
        self._whole = record if record and record.fetched_at and path.is_file() else None
        self._known = record if record and not record.fetched_at and self._part.is_file() else None
        self._size = self._part.stat().st_size if self._known and self._known.validator else 0

    def complete(self) -> _Record:
        """Bring what is missing, and return the record of the whole file."""
        client, began = self._client, self._client.clock()
        if self._whole and began - posix_time(self._whole.checked_at) <= client.config.listing_max_age_s:
            return self._whole
        while not self._is_current and not (self._known and self._known.total_bytes == self._size):
            before = self._size
            task = client.begin(Request(self._url, FILES, Kind.FILE))
            task.sink = self
            outcome = client.finish(task)
            self._close()
            if isinstance(outcome, FetchFailed):
                if self._whole and outcome.reason in TRANSIENT:
                    return self._whole
                if (
                    self._size <= before
                    or outcome.reason is Reason.TOO_LARGE
                    or client.clock() > began + FILE_TIMEOUT_S
                ):
                    raise outcome
            elif self._known and self._known.total_bytes is None:
                self._known = replace(self._known, total_bytes=self._size)
            elif self._size == before and not self._is_current:
                raise FetchFailed(Reason.TRUNCATED, f"{self._url}: nothing came of what is missing")
        return self._finished()

    def headers(self) -> Mapping[str, str]:
        """Return what asks for the rest alone, or for another edition of a file that is there."""
        self._close()
        if self._size and self._known:
            return {"Range": f"bytes={self._size}-", "If-Range": self._known.validator}
        known = (
            {"If-None-Match": self._whole.etag, "If-Modified-Since": self._whole.last_modified} if self._whole else {}
        )
        return {name: value for name, value in known.items() if value}

    def accepts(self, target: Target, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether an answer has a body for the file, and prepare for it."""
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        start, total = found.groups() if found else (None, headers.get("content-length"))
        record = _Record(
            final_url=target.url,
            etag=headers.get("etag", ""),
            last_modified=headers.get("last-modified", ""),
            total_bytes=int(total) if total else None,
        )
        if status in SUCCESSES:
            self._size = 0
        elif status == _UNSATISFIABLE and (found is None or record.total_bytes != self._size):
            self._size = 0  # longer than the file: it is of another one
        elif status == _PARTIAL and start != str(self._size):
            self._size = 0
            raise FetchFailed(Reason.TRUNCATED, f"{target.url}: other bytes than were asked for")
        self._is_current = status == _NOT_MODIFIED or (status in SUCCESSES and record.is_edition_of(self._whole))
        if self._is_current or status not in (*SUCCESSES, _PARTIAL):
            return False
        if (record.total_bytes or 0) > self._client.config.max_file_bytes:
            raise self._too_large()
        self._known = record
        self._open(record)
        return True

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        if self._size + len(piece) > self._client.config.max_file_bytes:
            raise self._too_large()
        if self._stream is not None:
            try:
                self._stream.write(piece)
            except OSError as error:
                raise BuildError(f"{self._part}: cannot be written ({error.strerror})") from error
        self._size += len(piece)

    def _finished(self) -> _Record:
        """Put the file in its place, and say so."""
        now = utc_text(self._client.clock())
        if self._is_current and self._whole:
            record = replace(self._whole, checked_at=now)
        else:
            record = replace(cast(_Record, self._known), fetched_at=now, checked_at=now)
            self._part.replace(self._path)
        self._write_record(record)
        return record

    def _open(self, record: _Record) -> None:
        try:
            self._write_record(record)
            self._stream = self._part.open("ab" if self._size else "wb")
        except OSError as error:
            raise BuildError(f"{self._part}: cannot be written ({error.strerror})") from error

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None

    def _read_record(self) -> _Record | None:
        path = self._path.with_name(f"{self._path.name}.json")
        return _Record(**json.loads(path.read_bytes())) if path.is_file() else None

    def _write_record(self, record: _Record) -> None:
        text = json.dumps(asdict(record), indent=1, sort_keys=True)
        Folder(str(self._path.parent)).write(f"{self._path.name}.json", f"{text}\n".encode())

    def _too_large(self) -> FetchFailed:
        limit = self._client.config.max_file_bytes
        return FetchFailed(Reason.TOO_LARGE, f"{self._url}: more than http.max_file_bytes = {limit} bytes")
