"""How fast each host is asked.

Every request starts `1 / requests_per_second` after the one before, at least. A host's own wishes lengthen that:
a `Crawl-delay`, few requests left in an `X-RateLimit-*` window, a pause after 429. No wish holds longer than
`LONGEST_WINDOW_S`, whatever the header says, and a later header that leaves enough ends it. All requests to a host are
made by one worker process, so this is the process's own memory. A host that nothing holds back any more is forgotten
once there are many.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LONGEST_INTERVAL_S = 120.0  # between two requests, by a host's wish
LONGEST_WINDOW_S = 3_600.0
_NEAR_ZERO = 50  # imgur counts 500 a user and 12,500 a client; from here on what is left is spread over its window
_MILLISECONDS = 1_000.0
_MOST_HOSTS = 20_000


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
        self._hosts: dict[str, _Host] = {}
        self._most = _MOST_HOSTS
        self._lock = threading.Lock()

    def next_start(self, host: str) -> float:
        """Return the earliest moment at which a request to a host may start."""
        known = self._hosts.get(host)
        return known.next_start if known is not None else 0.0

    def reserve(self, host: str) -> float:
        """Take the next start of a request to a host, and return how many seconds it is from now."""
        with self._lock:
            now = self._clock()
            if len(self._hosts) >= self._most:
                self._forget(now)
            known = self._host(host)
            start = max(now, known.next_start)
            slow_s = known.slow_interval_s if start < known.slow_until else 0.0
            known.next_start = start + max(self._interval_s, known.interval_s, slow_s)
            return start - now

    def slow_to(self, host: str, interval_s: float) -> None:
        """Leave at least this long between the starts of two requests to a host (`Crawl-delay`)."""
        with self._lock:
            known = self._host(host)
            if interval_s > known.interval_s:
                known.next_start += interval_s - max(self._interval_s, known.interval_s)
                known.interval_s = interval_s

    def pause(self, host: str, seconds: float) -> None:
        """Start no request to a host for a while (`Retry-After`)."""
        with self._lock:
            known = self._host(host)
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
                known, now = self._host(host), self._clock()
                known.slow_interval_s, known.slow_until = interval_s, now + window_s
                known.next_start = max(known.next_start, now + interval_s)
            if window_s:
                return

    def _host(self, name: str) -> _Host:
        return self._hosts.setdefault(name, _Host())

    def _forget(self, now: float) -> None:
        """Forget hosts that may be asked at once: a `Crawl-delay` is read again before the next request."""
        self._hosts = {name: host for name, host in self._hosts.items() if max(host.next_start, host.slow_until) > now}
        self._most = max(_MOST_HOSTS, 2 * len(self._hosts))


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
