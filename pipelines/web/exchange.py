"""One request and its answer: no redirect is followed and nothing is tried again here.

The body is read piece by piece under a byte cap and a deadline, before and after decompression alike, so that neither
a large answer, a slow one nor a small one that unpacks to much can hold a worker.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from typing import Protocol

from pipelines.settings import HttpConfig
from pipelines.web.connections import Connections, Reply
from pipelines.web.deadline import Deadline
from pipelines.web.errors import FetchFailed
from pipelines.web.targets import Target
from schemas.failures import Reason

PARTIAL = 206
SUCCESSES = frozenset({200, 203})
_GZIP_WINDOW = 31  # zlib: the largest window, with a gzip header


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gave; the names of headers are in lower case, the body is empty unless it is a success."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Sink(Protocol):
    """Where a body goes that is too large for memory."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers that ask for what is still missing."""
        ...

    def accepts(self, target: Target, status: int, fields: Mapping[str, str]) -> bool:
        """Return whether the body of an answer is wanted; it is then written in pieces."""
        ...

    def write(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        ...


def ask(
    connections: Connections,
    target: Target,
    *,
    headers: Mapping[str, str],
    config: HttpConfig,
    budget_s: float,
    sink: Sink | None = None,
) -> Answer:
    """Return the answer to one GET, whatever its status; a body that `sink` accepts goes there and not into it.

    Raises:
        FetchFailed: there is none: CONNECTION_FAILED, TIMED_OUT, TRUNCATED, TOO_LARGE or ADDRESS_REFUSED.
    """
    limit = Deadline(budget_s)
    try:
        with limit.running(), connections.asking(target, headers) as reply:
            answer = _take(reply, target, max_bytes=config.max_bytes, sink=sink)
    except (HTTPException, OSError) as error:
        raise _failed(error, target, limit) from error
    if limit.passed:  # a body without an announced length looks complete when its connection is shut down
        raise _too_late(target)
    return answer


def _take(reply: Reply, target: Target, *, max_bytes: int, sink: Sink | None) -> Answer:
    fields = reply.fields
    if sink is not None and sink.accepts(target, reply.status, fields):
        for piece in reply.pieces():
            sink.write(piece)
        return Answer(reply.status, fields)
    if reply.status not in SUCCESSES:
        return Answer(reply.status, fields)
    packed = _read(reply, target, max_bytes=max_bytes)
    return Answer(reply.status, fields, _unpack(packed, fields, target, max_bytes=max_bytes))


def _read(reply: Reply, target: Target, *, max_bytes: int) -> bytes:
    announced = reply.fields.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(target, f"{announced} bytes announced", max_bytes)
    body = bytearray()
    for piece in reply.pieces():
        body += piece
        if len(body) > max_bytes:
            raise _too_large(target, f"more than {max_bytes} bytes", max_bytes)
    return bytes(body)


def _unpack(body: bytes, fields: Mapping[str, str], target: Target, *, max_bytes: int) -> bytes:
    """Return a body without its Content-Encoding, which must be the one that was asked for."""
    encoding = fields.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        message = f"{target.url}: expected gzip or no content encoding, found {encoding!r}"
        raise FetchFailed(Reason.HTTP_ERROR, message)
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise FetchFailed(Reason.TRUNCATED, f"{target.url}: its gzip stream is broken", 1, "error") from error
    if len(plain) > max_bytes:
        raise _too_large(target, f"unpacks to more than {max_bytes} bytes", max_bytes)
    if body and not unpacker.eof:
        raise FetchFailed(Reason.TRUNCATED, f"{target.url}: its gzip stream ends early")
    return plain


def _failed(error: Exception, target: Target, limit: Deadline) -> FetchFailed:
    """Return what a library's exception means; the message holds nothing that changes from run to run."""
    if limit.passed:
        return _too_late(target)
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return FetchFailed(Reason.TIMED_OUT, f"{target.url}: the host fell silent", exception=name)
    if isinstance(error, IncompleteRead):
        message = f"{target.url}: the body is shorter than announced"
        return FetchFailed(Reason.TRUNCATED, message, exception=name)
    return FetchFailed(Reason.CONNECTION_FAILED, f"{target.url}: {name}: {error}", exception=name)


def _too_late(target: Target) -> FetchFailed:
    return FetchFailed(Reason.TIMED_OUT, f"{target.url}: no complete answer within http.total_timeout_s")


def _too_large(target: Target, found: str, max_bytes: int) -> FetchFailed:
    return FetchFailed(Reason.TOO_LARGE, f"{target.url}: {found}; http.max_bytes allows {max_bytes}")
