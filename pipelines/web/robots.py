"""robots.txt, as RFC 9309 asks: read once a day for each origin, before anything else of it is asked for.

A file that is not there (a 4xx) allows everything; one that cannot be read (a 5xx, no connection) allows nothing until
it can. Parsing and matching are Protego's; what an answer means is decided here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from protego import Protego

from pipelines.web.errors import FetchFailed
from pipelines.web.retries import TOO_MANY_REQUESTS
from pipelines.web.targets import Target
from schemas.failures import Reason

FRESH_S = 86_400.0  # RFC 9309 2.4
_RETRY_S = 300.0  # a file that could not be read is not tried again for so long
_PARSED_BYTES = 512_000  # RFC 9309 2.5: at least 500 KiB

ReadRobots = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one origin's file says; `failed` instead where it could not be read."""

    parsed: Protego | None
    failed: FetchFailed | None
    expires: float


class Robots:
    """The rules of every origin met so far, for one product token."""

    def __init__(
        self, read: ReadRobots, *, user_agent: str, longest_delay_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._token = user_agent.partition("/")[0].strip()
        self._longest_delay_s = longest_delay_s
        self._clock = clock
        self._rules: dict[str, _Rules] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def check(self, target: Target) -> float | None:
        """Return the delay the host wishes between requests, in seconds, if it names one.

        Raises:
            FetchFailed: ROBOTS_DENIED: the file says no (or a delay too long to wait, or only a server's error); any
                other reason: the file could not be read, and why.
        """
        rules = self._rules_of(target.origin)
        if rules.failed is not None:
            raise rules.failed.at_attempt(rules.failed.attempt)  # a fresh one for each thread
        if rules.parsed is None:
            return None
        if not rules.parsed.can_fetch(target.url, self._token):
            message = f"{target.origin}/robots.txt disallows {target.url} to {self._token}"
            raise FetchFailed(Reason.ROBOTS_DENIED, message)
        delay_s = rules.parsed.crawl_delay(self._token)
        if delay_s is not None and delay_s > self._longest_delay_s:
            message = f"{target.origin}/robots.txt wants {delay_s:g} s between requests, over http.max_backoff_s"
            raise FetchFailed(Reason.ROBOTS_DENIED, message)
        return delay_s

    def _rules_of(self, origin: str) -> _Rules:
        with self._guard:
            lock = self._locks.setdefault(origin, threading.Lock())
        with lock:
            rules = self._rules.get(origin)
            if rules is None or rules.expires <= self._clock():
                rules = self._rules[origin] = self._load(origin)
            return rules

    def _load(self, origin: str) -> _Rules:
        url = f"{origin}/robots.txt"
        try:
            text = self._read(url)[:_PARSED_BYTES].decode("utf-8-sig", errors="replace")
        except FetchFailed as problem:
            status = problem.status
            if status is not None and 400 <= status < 500 and status != TOO_MANY_REQUESTS:
                return _Rules(None, None, self._clock() + FRESH_S)
            return _Rules(None, _denied(url, problem), self._clock() + _RETRY_S)
        return _Rules(Protego.parse(text), None, self._clock() + FRESH_S)


def _denied(url: str, problem: FetchFailed) -> FetchFailed:
    """Return what an unreadable file means for the pages behind it."""
    message = f"{url} must be read first: {problem.message}"
    reason = problem.reason if problem.status is None else Reason.ROBOTS_DENIED
    return FetchFailed(reason, message, problem.attempt, problem.exception, problem.status)
