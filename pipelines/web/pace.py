"""How fast one host is asked: a rate, a number of requests under way, and slower still where the host says so.

Every request starts at a slot of its own, `1 / requests_per_second` after the one before. A host's own wishes lengthen
that: a `Crawl-delay`, few requests left in an `X-RateLimit-*` window, or a pause after 429. The slots are of all
processes that share the schedules; the number under way is counted here within a process, and among all in `slots.py`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipelines.web.schedules import Schedules

_NEAR_ZERO = 50  # imgur counts 500 a user and 12,500 a client; from here on what is left is spread over its window


@dataclass(slots=True)
class _Host:
    """What each process finds out of one host by itself."""

    free: threading.BoundedSemaphore
    interval_s: float


class Pace:
    """The pace of all requests, by host."""

    def __init__(
        self,
        schedules: Schedules,
        *,
        requests_per_second: float,
        connections_per_host: int,
        longest_interval_s: float,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schedules = schedules
        self._interval_s = 1.0 / requests_per_second
        self._connections = connections_per_host
        self._longest_interval_s = longest_interval_s
        self._clock = clock
        self._sleep = sleep
        self._hosts: dict[str, _Host] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def slot(self, host: str) -> Iterator[None]:
        """Wait for the host's next slot and a free connection, and hold the connection for a block."""
        state = self._host(host)
        with state.free:
            wait_s = self._reserve(host, state.interval_s)
            if wait_s > 0:
                self._sleep(wait_s)
            yield

    def slow_to(self, host: str, interval_s: float) -> None:
        """Leave at least this long between the starts of two requests to a host (`Crawl-delay`)."""
        state = self._host(host)
        with self._lock:
            state.interval_s = max(state.interval_s, interval_s)

    def pause(self, host: str, seconds: float) -> None:
        """Start no request to a host for a while (`Retry-After`)."""
        with self._schedules.changing(host) as schedule:
            schedule.next_start = max(schedule.next_start, self._clock() + seconds)

    def heed(self, host: str, headers: Mapping[str, str]) -> None:
        """Slow down where a response's `X-RateLimit-*` headers say that little is left of a window."""
        limits = {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-ratelimit-")}
        now = self._clock()
        for scope in ("user", "client", ""):
            remaining = _number(limits.get(f"x-ratelimit-{scope}remaining"))
            reset = _number(limits.get(f"x-ratelimit-{scope}reset") or limits.get("x-ratelimit-userreset"))
            if remaining is None or remaining >= _NEAR_ZERO or reset is None:
                continue
            window_s = reset - now if reset > now else reset  # imgur gives a moment, Reddit a number of seconds
            if window_s > 0:
                self._slow_for(host, window_s / max(remaining, 1.0), window_s)

    def _slow_for(self, host: str, interval_s: float, window_s: float) -> None:
        with self._schedules.changing(host) as schedule:
            schedule.slow_interval_s = min(interval_s, self._longest_interval_s)
            schedule.slow_until = self._clock() + window_s
            schedule.next_start = max(schedule.next_start, self._clock() + schedule.slow_interval_s)

    def _reserve(self, host: str, interval_s: float) -> float:
        """Take the host's next slot and return the seconds until it."""
        with self._schedules.changing(host) as schedule:
            now = self._clock()
            start = max(now, schedule.next_start)
            slow_s = schedule.slow_interval_s if start < schedule.slow_until else 0.0
            schedule.next_start = start + max(interval_s, slow_s)
            return start - now

    def _host(self, host: str) -> _Host:
        with self._lock:
            if host not in self._hosts:
                self._hosts[host] = _Host(threading.BoundedSemaphore(self._connections), self._interval_s)
            return self._hosts[host]


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None
