"""The raw store: every answer a host gave, kept by what was asked, so that a rerun fetches only what is missing.

    raw/<source>/captures/<hh>/<sha256 of the request>     a line of JSON: what was asked, what came, or why nothing
                                                           will; then the body

A capture is one file, since making a file takes a disk longer than filling it, and it is written atomically: a process
killed at any moment leaves a store in which every capture is whole. The disk is not waited for: what a power cut cut
short is known by its length, and counts as never fetched. Request headers are neither stored nor part of a request's
key: they may be credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO

from pipelines.web.errors import FetchFailed
from pipelines.web.exchange import Answer
from pipelines.web.locks import Locks
from pipelines.web.retries import posix_time
from schemas.errors import IntegrityError
from schemas.failures import Reason
from schemas.lake import Folder

_PIECE_BYTES = 65_536  # read at once: most captures whole
_KEPT_HEADERS = ("cache-control", "content-language", "content-type", "etag", "last-modified")


class Kind(StrEnum):
    """What a request is for; it decides what counts as a usable answer."""

    PAGE = "page"
    IMAGE = "image"  # a redirect to `/removed.png` and a page in HTML are failures
    API = "api"  # under an agreement with its host: robots.txt is not asked
    FILE = "file"  # a file of a source, kept as one (`downloads.py`)
    ROBOTS = "robots"  # the client's own


@dataclass(frozen=True, slots=True)
class Capture:
    """An answer as it is stored.

    Attributes:
        url: asked for, normalised.
        final_url: that gave the body, after redirects.
        headers: the few that are kept, names in lower case.
        body_bytes: its length, without any content encoding.
        fetched_at: when the answer came, ISO 8601 in UTC.
        key: of the request.
        from_store: whether it was there already.
        body: where it is at hand; `CaptureStore.body` gives it in any case, and checked.
    """

    source: str
    url: str
    final_url: str
    status: int
    headers: Mapping[str, str]
    body_sha256: str
    body_bytes: int
    fetched_at: str
    key: str
    from_store: bool
    body: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failure that asking again will not mend, as it is stored.

    Attributes:
        limit: the configured limit it broke, where it broke one: it holds for that limit alone.
    """

    failed: FetchFailed
    fetched_at: str
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, as the store knows it.

    Attributes:
        key: names it in the store.
    """

    source: str
    kind: Kind
    url: str
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", hashlib.sha256(f"{self.kind}\n{self.url}".encode()).hexdigest())


class CaptureStore:
    """The captures under `raw/`."""

    def __init__(self, raw: Folder) -> None:
        self._raw = raw
        self._locks = Locks(raw)

    def find(self, request: Request) -> Capture | Refusal | None:
        """Return what is stored for a request; a file that is not whole counts as nothing."""
        try:
            with self._raw.open(_name(request.source, request.key)) as stream:
                head, begun = _read_head(stream)
                found_bytes = stream.seek(0, os.SEEK_END) - len(head)
        except FileNotFoundError:
            return None
        if not head.endswith(b"\n"):
            return None
        record = json.loads(head)
        if "failure" in record:
            return _refusal(record)
        if found_bytes != record["body_bytes"]:
            return None
        return _capture(request, record, from_store=True, body=begun if len(begun) == found_bytes else None)

    def add(self, request: Request, answer: Answer, *, final_url: str, fetched_at: str) -> Capture:
        """Store an answer, and return it as a capture."""
        record = {
            "url": request.url,
            "final_url": final_url,
            "status": answer.status,
            "headers": {header: answer.headers[header] for header in _KEPT_HEADERS if header in answer.headers},
            "fetched_at": fetched_at,
            "body_sha256": hashlib.sha256(answer.body).hexdigest(),
            "body_bytes": len(answer.body),
        }
        self._raw.write(_name(request.source, request.key), _line(record) + answer.body, is_checked=True)
        return _capture(request, record, from_store=False, body=answer.body)

    def add_refusal(self, request: Request, refusal: Refusal) -> None:
        """Store a failure instead of an answer."""
        failed = refusal.failed
        failure = {
            "reason": str(failed.reason),
            "message": failed.message,
            "attempt": failed.attempt,
            "exception": failed.exception,
            "status": failed.status,
        }
        record = {"url": request.url, "fetched_at": refusal.fetched_at, "failure": failure, "limit": refusal.limit}
        self._raw.write(_name(request.source, request.key), _line(record), is_checked=True)

    def body(self, capture: Capture) -> bytes:
        """Return a capture's body.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        if capture.body is not None and not capture.from_store:
            return capture.body
        name = _name(capture.source, capture.key)
        body = capture.body
        if body is None:
            _, _, body = self._raw.read(name).partition(b"\n")
        if hashlib.sha256(body).hexdigest() != capture.body_sha256:
            raise IntegrityError(f"{self._raw.uri}/{name}: its body is not the one received; delete it and rerun")
        return body

    def alone(self, request: Request) -> AbstractContextManager[None]:
        """Return a block in which nobody else asks for the same thing."""
        return self._locks.holding(f"{request.source}/locks/{request.key}")


def age_s(stored: Capture | Refusal, *, now: float) -> float:
    """Return how long ago something stored was received."""
    return now - posix_time(stored.fetched_at)


def _capture(request: Request, record: Mapping[str, Any], *, from_store: bool, body: bytes | None) -> Capture:
    return Capture(
        source=request.source,
        url=record["url"],
        final_url=record["final_url"],
        status=record["status"],
        headers=record["headers"],
        body_sha256=record["body_sha256"],
        body_bytes=record["body_bytes"],
        fetched_at=record["fetched_at"],
        key=request.key,
        from_store=from_store,
        body=body,
    )


def _refusal(record: Mapping[str, Any]) -> Refusal:
    failure = record["failure"]
    failed = FetchFailed(
        Reason(failure["reason"]), failure["message"], failure["attempt"], failure["exception"], failure["status"]
    )
    return Refusal(failed, record["fetched_at"], record["limit"])


def _read_head(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Return a capture's first line, whole if it ends in a newline, and what was read of the body on the way."""
    read = b""
    while piece := stream.read(_PIECE_BYTES):
        read += piece
        if b"\n" in piece:
            break
    line, newline, begun = read.partition(b"\n")
    return line + newline, begun


def _line(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _name(source: str, key: str) -> str:
    return f"{source}/captures/{key[:2]}/{key}"
