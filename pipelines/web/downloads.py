"""A whole file behind a URL, kept on disk: dumps and archives that are too large for memory, and for a WARC segment.

    raw/files/<hh>/<key of the request>/<name>           the file, there once it is complete
    raw/files/<hh>/<key of the request>/<name>.part      what has come of it
    raw/files/<hh>/<key of the request>/<name>.json      what was answered: to go on by, then the record

These are the exception to `pipelines/raw/`: plain files that their readers open by path. What was interrupted goes on
where it stopped (`Range` with `If-Range`, RFC 9110 13.1.5 and 14.2), unless the host does not know ranges or has
another file by now: then it starts again. A file older than `http.listing_max_age_s` is asked about again, and fetched
again only where its host has another one. One process at a time fetches a file.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from pipelines.raw import FILES
from pipelines.web.client import Client
from pipelines.web.requests import NOT_MODIFIED, SUCCESSES, FetchFailed, Kind, Request, Target, posix_time, utc_text
from schemas.failures import TRANSIENT, Reason
from schemas.lake import Folder
from schemas.messages import BuildError

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})")
_PARTIAL, _UNSATISFIABLE = 206, 416


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
    """What is kept beside a file: which edition it or its part is of, when it was complete, and when it was checked."""

    url: str
    etag: str
    last_modified: str
    total_bytes: int | None
    fetched_at: str = ""
    checked_at: str = ""

    @property
    def validator(self) -> str:
        """Return what tells a file from its next edition: a strong ETag, else the date of its last change."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.last_modified


def capture_file(client: Client, url: str) -> CapturedFile:
    """Return the file behind a URL; what of it is there is not asked for again.

    Raises:
        BuildError: the raw store is on no file system.
        FetchFailed: it cannot be had; what came of it is kept, and the next call goes on from there.
    """
    task = client.begin(Request(url, FILES, Kind.FILE))
    root = client.raw.local
    if root is None:
        raise BuildError(f"{url}: a file can be captured in a lake on a file system alone; give its path instead")
    path = root / FILES / task.key[:2] / task.key / file_name(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        record = _read_record(path)
        whole = record if record and record.fetched_at and path.is_file() else None
        if whole is None or client.clock() - posix_time(whole.checked_at) > client.config.listing_max_age_s:
            try:
                whole = _Download(client, url, path, record, whole).complete()
            finally:
                client.flush()  # what its host allows is in the store
    return CapturedFile(path, task.target.url, whole.fetched_at)


def file_name(url: str) -> str:
    """Return the last part of a URL's path as a plain file name: its ending says what kind of file it is."""
    name = _NOT_IN_NAMES.sub("_", unquote(PurePosixPath(urlsplit(url).path).name)).strip(".")
    return name[-100:] or "file"


class _Download:
    """A file under way: the part of it that is there, and the edition that this part is of."""

    def __init__(self, client: Client, url: str, path: Path, record: _Record | None, whole: _Record | None) -> None:
        self._client = client
        self._url = url
        self._path = path
        self._stream = path.with_name(f"{path.name}.part").open("ab")
        self._whole = whole
        self._is_current = False
        self._known = record if record and not record.fetched_at and record.validator else None
        if self._known is None:
            self._stream.truncate(0)

    def complete(self) -> _Record:
        """Bring what is missing, and return the record of the whole file."""
        with self._stream:
            while not self._is_over:
                before = self._stream.tell()
                problem = self._ask()
                if self._whole and problem and problem.reason in TRANSIENT:
                    return self._whole
                if problem and (self._stream.tell() <= before or problem.reason is Reason.TOO_LARGE):
                    raise problem
            self._stream.flush()
            os.fsync(self._stream.fileno())
        part, now = Path(self._stream.name), utc_text(self._client.clock())
        if self._is_current and self._whole:
            record = replace(self._whole, checked_at=now)
            part.unlink()
        else:
            record = replace(cast(_Record, self._known), fetched_at=now, checked_at=now)
            part.replace(self._path)
        _write_record(self._path, record)
        return record

    @property
    def _is_over(self) -> bool:
        return self._is_current or (self._known is not None and self._known.total_bytes == self._stream.tell())

    def _ask(self) -> FetchFailed | None:
        """Ask for what is missing; return why nothing more came."""
        before = self._stream.tell()
        task = self._client.begin(Request(self._url, FILES, Kind.FILE))
        task.headers, task.sink = self._headers, self._take
        outcome = self._client.finish(task)
        if isinstance(outcome, FetchFailed):
            return outcome
        if self._known and self._known.total_bytes is None:
            self._known = replace(self._known, total_bytes=self._stream.tell())
        is_idle = self._stream.tell() == before and not self._is_over
        return FetchFailed(Reason.TRUNCATED, f"{self._url}: the missing part did not arrive") if is_idle else None

    def _headers(self) -> Mapping[str, str]:
        """Return what asks for the rest alone, or for another edition of a file that is there."""
        if self._stream.tell() and self._known:
            return {"Range": f"bytes={self._stream.tell()}-", "If-Range": self._known.validator}
        there = self._whole
        known = {"If-None-Match": there.etag, "If-Modified-Since": there.last_modified} if there else {}
        return {name: value for name, value in known.items() if value}

    def _take(self, target: Target, status: int, headers: Mapping[str, str]) -> BinaryIO | None:
        """Return what the body of an answer is written to, None where nothing of it is wanted."""
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        start, total = found.groups() if found else (None, headers.get("content-length"))
        offered = _Record(
            url=target.url,
            etag=headers.get("etag", ""),
            last_modified=headers.get("last-modified", ""),
            total_bytes=int(total) if total else None,
        )
        size = self._stream.tell()
        is_other = status == _PARTIAL and start != str(size)
        is_longer = status == _UNSATISFIABLE and (found is None or offered.total_bytes != size)
        if status in SUCCESSES or is_other or is_longer:
            self._stream.truncate(0)
            self._stream.seek(0)
        if is_other:
            raise FetchFailed(Reason.TRUNCATED, f"{target.url}: expected the requested range of bytes, found another")
        there = self._whole and (self._whole.validator, self._whole.total_bytes)
        is_there = bool(offered.validator) and there == (offered.validator, offered.total_bytes)
        self._is_current = status == NOT_MODIFIED or (status in SUCCESSES and is_there)
        if self._is_current or status not in (*SUCCESSES, _PARTIAL):
            return None
        self._known = offered
        _write_record(self._path, offered)
        return self._stream


def _read_record(path: Path) -> _Record | None:
    try:
        return _Record(**json.loads(path.with_name(f"{path.name}.json").read_bytes()))
    except (FileNotFoundError, TypeError, ValueError):  # TypeError: of another edition of this code
        return None


def _write_record(path: Path, record: _Record) -> None:
    text = json.dumps(asdict(record), indent=1, sort_keys=True)
    Folder(str(path.parent)).write(f"{path.name}.json", f"{text}\n".encode())
