"""The client every source fetches through: it answers from the raw store, and goes out once for what is not there.

    get -> stored? -> alone -> stored? -> fetch (fetcher.py) -> stored

What is remembered, and for how long, is decided here; what an image's bytes are worth is not.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

from pipelines.settings import HttpConfig
from pipelines.web.captures import Capture, CaptureStore, Kind, Refusal, Request, age_s
from pipelines.web.downloads import FILES, CapturedFile, capture_file
from pipelines.web.errors import FetchFailed
from pipelines.web.fetcher import Fetcher
from pipelines.web.retries import utc_text
from pipelines.web.robots import FRESH_S
from pipelines.web.targets import parse_target
from schemas.failures import TRANSIENT, Reason
from schemas.lake import Folder

_ROBOTS = "robots"
_MAKING = threading.Lock()
# No host has answered, or the failure follows from a robots.txt that may change: found again without a request.
_NOT_REMEMBERED = frozenset({Reason.CONNECTION_FAILED, Reason.ROBOTS_DENIED})
# Remembered for `http.retry_failures_after_s`: a later answer may differ (a name may lead to another address, too).
_PASSING = TRANSIENT | {Reason.ADDRESS_REFUSED}


class Client:
    """Thread-safe. Make one per process with `process_client`: its threads share connections."""

    def __init__(
        self,
        config: HttpConfig,
        raw: Folder,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._raw = raw
        self._clock = clock
        self._store = CaptureStore(raw)
        self._fetcher = Fetcher(config, raw, read_robots=self._read_robots, clock=clock, sleep=sleep)

    def get(
        self,
        url: str,
        *,
        source: str,
        kind: Kind,
        headers: Mapping[str, str] | None = None,
        max_age_s: float | None = None,
    ) -> Capture:
        """Return the captured answer to a GET, going out only where none is stored.

        Args:
            url: absolute, http or https.
            source: folder of the raw store.
            kind: what the answer is for.
            headers: further ones, such as credentials: sent to the URL's own origin alone, and never stored.
            max_age_s: something stored longer ago is asked for again; None keeps it for ever.

        Raises:
            FetchFailed: there is no usable answer, now or as remembered from an earlier run.
        """
        request = Request(source, kind, parse_target(url).url)
        stored = self._stored(request, max_age_s)
        if stored is not None:
            return stored
        with self._store.alone(request):
            stored = self._stored(request, max_age_s)  # someone else may have asked meanwhile
            return stored if stored is not None else self._fetch(request, headers or {})

    def body(self, capture: Capture) -> bytes:
        """Return a capture's body.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        return self._store.body(capture)

    def file(self, url: str) -> CapturedFile:
        """Return a file of any size, captured on disk, going out only for what of it is not there.

        Raises:
            BuildError: the raw store is on no file system.
            FetchFailed: it cannot be had, now; what came of it is kept, and the next call goes on from there.
        """
        request = Request(FILES, Kind.FILE, parse_target(url).url)
        with self._store.alone(request):
            return capture_file(request, self._raw, self._fetcher, config=self._config, clock=self._clock)

    def close(self) -> None:
        """Close every idle connection; the client stays usable."""
        self._fetcher.close()

    def _stored(self, request: Request, max_age_s: float | None) -> Capture | None:
        """Return the stored capture, raise the remembered failure, or return None where neither holds any more."""
        found = self._store.find(request)
        if found is None or (max_age_s is not None and self._age_s(found) > max_age_s):
            return None
        if isinstance(found, Capture):
            return found
        has_passed = found.failed.reason in _PASSING and self._age_s(found) > self._config.retry_failures_after_s
        if found.limit == _limit_of(found.failed.reason, self._config) and not has_passed:
            raise found.failed
        return None

    def _age_s(self, found: Capture | Refusal) -> float:
        return age_s(found, now=self._clock())

    def _fetch(self, request: Request, headers: Mapping[str, str]) -> Capture:
        try:
            final, answer = self._fetcher.fetch(request, headers)
        except FetchFailed as problem:
            if _is_remembered(problem.reason, request.kind, has_credentials=bool(headers)):
                limit = _limit_of(problem.reason, self._config)
                self._store.add_refusal(request, Refusal(problem, utc_text(self._clock()), limit))
            raise
        return self._store.add(request, answer, final_url=final.url, fetched_at=utc_text(self._clock()))

    def _read_robots(self, url: str) -> bytes:
        return self.body(self.get(url, source=_ROBOTS, kind=Kind.ROBOTS, max_age_s=FRESH_S))


def process_client(config: HttpConfig, raw: Folder) -> Client:
    """Return this process's one client for a configuration and a store, so that all its threads share connections."""
    with _MAKING:  # a cache alone would let two threads make one each
        return _client(config, raw)


@lru_cache(maxsize=8)
def _client(config: HttpConfig, raw: Folder) -> Client:
    return Client(config, raw)


def _is_remembered(reason: Reason, kind: Kind, *, has_credentials: bool) -> bool:
    """Return whether a failure is stored. Wrong credentials are not; robots.txt has a patience of its own."""
    if kind is Kind.ROBOTS and reason in TRANSIENT:
        return False
    return reason not in _NOT_REMEMBERED and not (reason is Reason.FORBIDDEN and has_credentials)


def _limit_of(reason: Reason, config: HttpConfig) -> int | None:
    """Return the configured limit behind a failure: with another limit, the failure no longer holds."""
    allowed = zlib.crc32(",".join(sorted(config.allow_hosts)).encode())
    limits = {
        Reason.TOO_LARGE: config.max_bytes,
        Reason.TOO_MANY_REDIRECTS: config.max_redirects,
        Reason.ADDRESS_REFUSED: allowed,
    }
    return limits.get(reason)
