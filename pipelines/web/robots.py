"""robots.txt, as RFC 9309 asks: read once a day for each origin, before anything else of it is asked for.

A file that is not there (a 4xx) allows everything; one that cannot be read (a 5xx, no connection) allows nothing until
it can. Parsing and matching are Protego's; what an answer means is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protego import Protego

from pipelines.web.answers import LONGEST_WAIT_S, TOO_MANY_REQUESTS
from pipelines.web.errors import FetchFailed
from pipelines.web.urls import Target
from schemas.failures import Reason

FRESH_S = 86_400.0  # RFC 9309 2.4
_RETRY_S = 300.0  # a file that could not be read is not tried again for so long
_PARSED_BYTES = 512_000  # RFC 9309 2.5: at least 500 KiB

ReadRobots = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one origin's file says; where it could not be read, why, and how often in a row."""

    expires: float
    parsed: Protego | None = None
    failed: FetchFailed | None = None
    failures: int = 0


class Robots:
    """The rules of every origin met so far, for one product token."""

    def __init__(self, read: ReadRobots, *, user_agent: str, attempts: int, clock: Callable[[], float]) -> None:
        self._read = read
        self._token = user_agent.partition("/")[0].strip()
        self._attempts = attempts
        self._clock = clock
        self._rules: dict[str, _Rules] = {}

    def check(self, target: Target) -> float:
        """Return the delay the host wishes between requests, in seconds, or 0.

        Raises:
            FetchFailed: ROBOTS_DENIED: the file says no (or a delay too long to wait, or only a server's error); any
                other reason: the file could not be read, and why.
        """
        rules = self._rules.get(target.origin)
        if rules is None or rules.expires <= self._clock():
            rules = self._rules[target.origin] = self._load(target.origin, rules.failures if rules else 0)
        if rules.failed is not None:
            raise FetchFailed(*rules.failed.args)  # a fresh one for each thread
        if rules.parsed is None:
            return 0.0
        if not rules.parsed.can_fetch(target.url, self._token):
            message = f"{target.origin}/robots.txt disallows {target.url} to {self._token}"
            raise FetchFailed(Reason.ROBOTS_DENIED, message)
        delay_s = rules.parsed.crawl_delay(self._token) or 0.0
        if delay_s > LONGEST_WAIT_S:
            message = f"{target.origin}/robots.txt wants {delay_s:g} s between requests, over {LONGEST_WAIT_S:g}"
            raise FetchFailed(Reason.ROBOTS_DENIED, message)
        return delay_s

    def _load(self, origin: str, failures: int) -> _Rules:
        """Read a file once; what fails is tried again by the next request, until it has failed often enough."""
        url = f"{origin}/robots.txt"
        try:
            text = self._read(url)[:_PARSED_BYTES].decode("utf-8-sig", errors="replace")
        except FetchFailed as problem:
            if problem.status is not None and 400 <= problem.status < 500 and problem.status != TOO_MANY_REQUESTS:
                return _Rules(self._clock() + FRESH_S)
            if failures + 1 < self._attempts:
                return _Rules(self._clock(), None, problem, failures + 1)
            if problem.status is not None:
                message = f"{url} must be read first: {problem.message}"
                problem = FetchFailed(Reason.ROBOTS_DENIED, message, problem.exception)
            return _Rules(self._clock() + _RETRY_S, None, problem)
        return _Rules(self._clock() + FRESH_S, Protego.parse(text))
