"""What each host wishes: how fast it is asked, and what its robots.txt allows.

Pace: every request starts `1 / requests_per_second` after the one before, at least. A host's own wishes lengthen that:
a `Crawl-delay`, few requests left in an `X-RateLimit-*` window, a pause after 429. No wish holds longer than
`LONGEST_WINDOW_S`, whatever the header says, and a later header that leaves enough ends it. All requests to a host are
made by one worker process, so this is the process's own memory.

robots.txt, as RFC 9309 asks: read once a day for each origin, before anything else of it is asked for. A file that is
not there (a 4xx) allows everything; one that cannot be read (a 5xx, no connection) allows nothing until it can. Parsing
and matching are Protego's; what an answer means is decided here.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protego import Protego

from pipelines.web.requests import LONGEST_WAIT_S, TOO_MANY_REQUESTS, FetchFailed, Target
from schemas.failures import Reason

LONGEST_INTERVAL_S = 120.0  # between two requests, by a host's wish
LONGEST_WINDOW_S = 3_600.0
_NEAR_ZERO = 50  # imgur counts 500 a user and 12,500 a client; from here on what is left is spread over its window
_MILLISECONDS = 1_000.0
FRESH_S = 86_400.0  # RFC 9309 2.4
_RETRY_S = 300.0  # a file that could not be read is not tried again for so long
_PARSED_BYTES = 512_000  # RFC 9309 2.5: at least 500 KiB


@dataclass(slots=True)
class _Host:
    """What is known of a host; moments are of the clock."""

    interval_s: float = 0.0
    next_start: float = 0.0
    slow_interval_s: float = 0.0
    slow_until: float = 0.0


class Pace:
    """The pace of all requests of this process, by host; thread-safe."""

    def __init__(self, *, requests_per_second: float, clock: Callable[[], float]) -> None:
        self._interval_s = 1.0 / requests_per_second
        self._clock = clock
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._lock = threading.Lock()

    def next_start(self, host: str) -> float:
        """Return the earliest moment at which a request to a host may start."""
        return self._hosts[host].next_start

    def reserve(self, host: str) -> float:
        """Take the next start of a request to a host, and return how many seconds it is from now."""
        with self._lock:
            known, now = self._hosts[host], self._clock()
            start = max(now, known.next_start)
            slow_s = known.slow_interval_s if start < known.slow_until else 0.0
            known.next_start = start + max(self._interval_s, known.interval_s, slow_s)
            return start - now

    def slow_to(self, host: str, interval_s: float) -> None:
        """Leave at least this long between the starts of two requests to a host (`Crawl-delay`)."""
        with self._lock:
            known = self._hosts[host]
            if interval_s > known.interval_s:
                known.next_start += interval_s - max(self._interval_s, known.interval_s)
                known.interval_s = interval_s

    def pause(self, host: str, seconds: float) -> None:
        """Start no request to a host for a while (`Retry-After`)."""
        with self._lock:
            known = self._hosts[host]
            known.next_start = max(known.next_start, self._clock() + min(seconds, LONGEST_INTERVAL_S))

    def heed(self, host: str, headers: Mapping[str, str]) -> None:
        """Slow down where a response's `X-RateLimit-*` headers say that little is left of a window, else no longer."""
        limits = {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-ratelimit-")}
        for scope in ("user", "client", ""):
            left = _number(limits.get(f"x-ratelimit-{scope}remaining"))
            reset = _number(limits.get(f"x-ratelimit-{scope}reset") or limits.get("x-ratelimit-userreset"))
            if left is None or reset is None:
                continue
            window_s = min(_seconds_until(reset, self._clock()), LONGEST_WINDOW_S) if left < _NEAR_ZERO else 0.0
            interval_s = min(window_s / max(left, 1.0), LONGEST_INTERVAL_S)
            with self._lock:
                known, now = self._hosts[host], self._clock()
                known.slow_interval_s, known.slow_until = interval_s, now + window_s
                known.next_start = max(known.next_start, now + interval_s)
            if window_s:
                return


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _seconds_until(reset: float, now: float) -> float:
    """Return the seconds to the end of a window: hosts give a moment or a number, in seconds or milliseconds."""
    if reset > now * _MILLISECONDS / 2:
        reset /= _MILLISECONDS
    return max(0.0, reset - now) if reset > now / 2 else reset


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one origin's file says, or why it could not be read, and how often in a row."""

    expires: float
    said: Protego | FetchFailed
    failures: int = 0


class Robots:
    """The rules of every origin met so far, for one product token."""

    def __init__(
        self, read: Callable[[str], bytes], *, user_agent: str, attempts: int, clock: Callable[[], float]
    ) -> None:
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
        if isinstance(rules.said, FetchFailed):
            raise FetchFailed(*rules.said.args)  # a fresh one for each thread
        if not rules.said.can_fetch(target.url, self._token):
            message = f"{target.origin}/robots.txt disallows {target.url} to {self._token}"
            raise FetchFailed(Reason.ROBOTS_DENIED, message)
        delay_s = rules.said.crawl_delay(self._token) or 0.0
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
            status = problem.status or 0
            if not 400 <= status < 500 or status == TOO_MANY_REQUESTS:
                if failures + 1 < self._attempts:
                    return _Rules(self._clock(), problem, failures + 1)
                if status:
                    message = f"{url} must be read first: {problem.message}"
                    problem = FetchFailed(Reason.ROBOTS_DENIED, message, problem.exception)
                return _Rules(self._clock() + _RETRY_S, problem)
            text = ""  # it is not there
        return _Rules(self._clock() + FRESH_S, Protego.parse(text))
