"""A whole file behind a URL, kept on disk: dumps and archives that are too large for memory, and for a WARC segment.

    raw/files/<hh>/<key of the request>/<name>           the file, there once it is complete
    raw/files/<hh>/<key of the request>/<name>.json      which edition of it that is

These are the exception to `pipelines/raw.py`: plain files that their readers open by path. A file older than
`http.listing_max_age_s` is asked about again, and fetched again only where its host has another one. What breaks off
begins again, as often as other requests. One process at a time fetches a file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from pipelines.raw import FILES
from pipelines.web.client import Client, usable
from pipelines.web.requests import (
    NOT_MODIFIED,
    SUCCESSES,
    FetchFailed,
    Kind,
    Request,
    Target,
    Task,
    posix_time,
    utc_text,
)
from schemas.errors import BuildError
from schemas.failures import TRANSIENT, Reason
from schemas.lake import Folder

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


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
class _Edition:
    """What is kept beside a file: by what its next edition is told from it, when it was complete, and when checked."""

    etag: str
    last_modified: str
    total_bytes: str
    fetched_at: str = ""
    checked_at: str = ""

    def is_same(self, other: "_Edition") -> bool:
        """Return whether another one is this one for sure: by a strong ETag, else by the date of its last change."""
        has_tag = bool(self.etag) and not self.etag.startswith("W/")
        mine, its = (each.etag if has_tag else each.last_modified for each in (self, other))
        return bool(mine) and (mine, self.total_bytes) == (its, other.total_bytes)


def capture_file(client: Client, url: str) -> CapturedFile:
    """Return the file behind a URL; one that is there is not fetched again.

    Raises:
        BuildError: the raw store is on no file system.
        FetchFailed: it cannot be had.
    """
    task = client.begin(Request(url, FILES, Kind.FILE))
    root = client.raw.local
    if root is None:
        raise BuildError(f"{url}: a file can be captured in a lake on a file system alone; give its path instead")
    path = root / FILES / task.key[:2] / task.key / file_name(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        there = _read_edition(path)
        if there is None or client.clock() - posix_time(there.checked_at) > client.config.listing_max_age_s:
            try:
                there = _fetch(client, task, path, there)
            finally:
                client.flush()  # what its host allows is in the store
    return CapturedFile(path, task.home.url, there.fetched_at)


def file_name(url: str) -> str:
    """Return the last part of a URL's path as a plain file name: its ending says what kind of file it is."""
    name = _NOT_IN_NAMES.sub("_", unquote(PurePosixPath(urlsplit(url).path).name)).strip(".")
    return name[-100:] or "file"


class _Download:
    """Takes the answers to a request of a file, into a stream.

    Attributes:
        edition: that its host has: the one that is there, where that is it still.
    """

    def __init__(self, there: _Edition | None, stream: BinaryIO) -> None:
        self.edition: _Edition | None = None
        self._there = there
        self._stream = stream

    def headers(self) -> dict[str, str]:
        """Return what asks for another edition than the one that is there."""
        there = self._there
        known = {"If-None-Match": there.etag, "If-Modified-Since": there.last_modified} if there else {}
        return {name: value for name, value in known.items() if value}

    def take(self, _: Target, status: int, headers: Mapping[str, str]) -> BinaryIO | None:
        """Return what the body of an answer is written to, None where it is not wanted."""
        if status == NOT_MODIFIED:
            self.edition = self._there
        if status not in SUCCESSES:
            return None
        offered = _Edition(
            etag=headers.get("etag", ""),
            last_modified=headers.get("last-modified", ""),
            total_bytes=headers.get("content-length", ""),
        )
        is_there = self._there is not None and self._there.is_same(offered)
        self.edition = self._there if is_there else offered
        self._stream.seek(0)
        self._stream.truncate()
        return None if is_there else self._stream


def _fetch(client: Client, task: Task, path: Path, there: _Edition | None) -> _Edition:
    """Return the edition of a file that is there now: the one before where its host has no other, or is in trouble."""
    with Folder(str(path.parent)).create(path.name) as sink:
        download = _Download(there, sink.stream)
        task.headers, task.sink = download.headers, download.take
        outcome = client.finish(task)
        if there is not None and isinstance(outcome, FetchFailed) and outcome.reason in TRANSIENT:
            return there
        usable(outcome)
        now = utc_text(client.clock())
        if download.edition is None:
            raise FetchFailed(Reason.HTTP_ERROR, f"{task.home.url}: status {NOT_MODIFIED} of a file that is not there")
        if download.edition is there:
            edition = replace(there, checked_at=now)
        else:
            sink.commit()
            edition = replace(download.edition, fetched_at=now, checked_at=now)
    text = json.dumps(asdict(edition), indent=1, sort_keys=True)
    Folder(str(path.parent)).write(f"{path.name}.json", f"{text}\n".encode())
    return edition


def _read_edition(path: Path) -> _Edition | None:
    """Return the edition of a file that is there."""
    try:
        edition = _Edition(**json.loads(path.with_name(f"{path.name}.json").read_bytes()))
    except (FileNotFoundError, TypeError, ValueError):  # TypeError: of another edition of this code
        return None
    return edition if path.is_file() else None
