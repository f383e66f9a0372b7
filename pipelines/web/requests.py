"""What is asked for and what came of it, as callers see them; and a request that is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pipelines.web.errors import FetchFailed
from pipelines.web.transport import Sink
from pipelines.web.urls import Target
from schemas.raw import RawEntry


class Kind(StrEnum):
    """What a request is for; it decides what counts as a usable answer."""

    PAGE = "page"
    IMAGE = "image"  # a redirect to `/removed.png` and a page in HTML are failures
    API = "api"  # under an agreement with its host: robots.txt is not asked
    FILE = "file"  # a file of a source, kept as one (`downloads.py`)
    ROBOTS = "robots"  # the client's own


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        url: absolute, http or https.
        source: folder of the raw store.
        kind: what the answer is for.
        headers: further ones, such as credentials: sent to the URL's own origin alone, and never stored.
        max_age_s: something stored longer ago is asked for again; None: as long as the kind allows.
        tag: of the caller; it comes back with the outcome.
    """

    url: str
    source: str
    kind: Kind
    headers: Mapping[str, str] = field(default_factory=dict)
    max_age_s: float | None = None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class Response:
    """A usable answer.

    Attributes:
        entry: what the raw store knows of it: its address, status, time, digest and position.
        source: folder of the raw store.
        from_store: whether it was there already.
        body: where it is at hand; `Client.body` gives it in any case, and checked.
    """

    entry: RawEntry
    source: str
    from_store: bool
    body: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def final_url(self) -> str:
        return self.entry.final_url or self.entry.url

    @property
    def fetched_at(self) -> str:
        return self.entry.fetched_at


Outcome = Response | FetchFailed


@dataclass(slots=True)
class Task:
    """A request under way: where its next exchange goes, and what it has used up.

    Attributes:
        key: of the request in the raw store.
        origin: where the request's own headers may go.
        target: of the next exchange.
        attempt_s: time for the exchanges of one attempt.
        budget_s: what is left of it.
        attempt: the number of this attempt, from 1.
        ready_at: the next exchange starts no earlier.
        visited: addresses of this attempt, in order.
        stored: an answer that was too old, and may be still the right one.
        problem: what the last exchange failed with.
        sink: takes a body that is too large for memory.
    """

    request: Request
    key: str
    origin: str
    target: Target
    attempt_s: float
    budget_s: float
    attempt: int = 1
    ready_at: float = 0.0
    visited: list[str] = field(default_factory=list)
    stored: RawEntry | None = None
    problem: FetchFailed | None = None
    sink: Sink | None = None
