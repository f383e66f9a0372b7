"""The raw store: every answer a host gave, kept by content, so that a rerun fetches only what is missing.

    raw/<source>/bodies/<hh>/<sha256 of the body>
    raw/<source>/responses/<hh>/<sha256 of the request>.json     what was asked, what came, or why nothing will

A body is written before the response that names it, each atomically: a process killed at any moment leaves a store in
which every response is true. The disk is not waited for: what a power cut emptied is known by its length, and counts as
never fetched. Request headers are neither stored nor part of a request's key: they may be credentials.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipelines.http.errors import FetchFailed
from pipelines.http.exchange import Answer
from pipelines.http.locks import Locks
from pipelines.http.retries import posix_time
from schemas.errors import IntegrityError
from schemas.failures import Reason
from schemas.lake import Folder

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
        from_store: whether it was there already.
    """

    source: str
    url: str
    final_url: str
    status: int
    headers: Mapping[str, str]
    body_sha256: str
    body_bytes: int
    fetched_at: str
    from_store: bool


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
    """What is asked for, as the store knows it."""

    source: str
    kind: Kind
    url: str

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.kind}\n{self.url}".encode()).hexdigest()


class CaptureStore:
    """The captures under `raw/`."""

    def __init__(self, raw: Folder) -> None:
        self._raw = raw
        self._locks = Locks(raw)

    def find(self, request: Request) -> Capture | Refusal | None:
        """Return what is stored for a request; an empty response, or one whose body is gone, counts as nothing."""
        try:
            stored = self._raw.read(_response_name(request))
        except FileNotFoundError:
            return None
        if not stored:
            return None
        record = json.loads(stored)
        if "failure" in record:
            return _refusal(record)
        capture = _capture(request.source, record)
        found_bytes = self._raw.size(_body_name(request.source, capture.body_sha256))
        return capture if found_bytes == capture.body_bytes else None

    def add(self, request: Request, answer: Answer, *, final_url: str, fetched_at: str) -> Capture:
        """Store an answer, its body first, and return it as a capture."""
        digest = hashlib.sha256(answer.body).hexdigest()
        name = _body_name(request.source, digest)
        if self._raw.size(name) != len(answer.body):
            self._raw.write(name, answer.body, is_checked=True)
        kept = {header: answer.headers[header] for header in _KEPT_HEADERS if header in answer.headers}
        record = {
            "url": request.url,
            "final_url": final_url,
            "status": answer.status,
            "headers": kept,
            "fetched_at": fetched_at,
            "body_sha256": digest,
            "body_bytes": len(answer.body),
        }
        self._raw.write(_response_name(request), _json(record), is_checked=True)
        return _capture(request.source, record, from_store=False)

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
        self._raw.write(_response_name(request), _json(record), is_checked=True)

    def body(self, capture: Capture) -> bytes:
        """Return a capture's body.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        name = _body_name(capture.source, capture.body_sha256)
        body = self._raw.read(name)
        if hashlib.sha256(body).hexdigest() != capture.body_sha256:
            raise IntegrityError(f"{self._raw.uri}/{name}: its bytes are not those of its name; delete it and rerun")
        return body

    def alone(self, request: Request) -> AbstractContextManager[None]:
        """Return a block in which nobody else asks for the same thing."""
        return self._locks.holding(f"{request.source}/locks/{request.key}")


def age_s(stored: Capture | Refusal, *, now: float) -> float:
    """Return how long ago something stored was received."""
    return now - posix_time(stored.fetched_at)


def _capture(source: str, record: Mapping[str, Any], *, from_store: bool = True) -> Capture:
    return Capture(
        source=source,
        url=record["url"],
        final_url=record["final_url"],
        status=record["status"],
        headers=record["headers"],
        body_sha256=record["body_sha256"],
        body_bytes=record["body_bytes"],
        fetched_at=record["fetched_at"],
        from_store=from_store,
    )


def _refusal(record: Mapping[str, Any]) -> Refusal:
    failure = record["failure"]
    failed = FetchFailed(
        Reason(failure["reason"]), failure["message"], failure["attempt"], failure["exception"], failure["status"]
    )
    return Refusal(failed, record["fetched_at"], record["limit"])


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def _response_name(request: Request) -> str:
    return f"{request.source}/responses/{request.key[:2]}/{request.key}.json"


def _body_name(source: str, digest: str) -> str:
    return f"{source}/bodies/{digest[:2]}/{digest}"
