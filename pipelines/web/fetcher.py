"""Going out: attempts, redirects, robots.txt, pace and one exchange after another, until an answer can be judged.

    fetch -> attempts -> follow redirects -> (robots, pace, ask) for each hop -> is this answer usable?

This file only orders these steps; each has a file of its own. It knows nothing of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from pipelines.settings import HttpConfig
from pipelines.web.addresses import AddressBook
from pipelines.web.captures import Kind, Request
from pipelines.web.connections import Connections
from pipelines.web.errors import FetchFailed
from pipelines.web.exchange import PARTIAL, SUCCESSES, Answer, Sink, ask
from pipelines.web.pace import Pace
from pipelines.web.redirects import follow
from pipelines.web.retries import RETRIED_STATUSES, backoff_s, may_help, reason_of_status, retry_after_s
from pipelines.web.robots import ReadRobots, Robots
from pipelines.web.schedules import schedules_of
from pipelines.web.slots import Slots
from pipelines.web.targets import Target, parse_target
from schemas.failures import Reason
from schemas.lake import Folder

_REMOVED = "/removed.png"  # where imgur redirects a deleted image
_PICTURE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"RIFF")  # JPEG, PNG, GIF, WebP: some hosts mistype them


@dataclass(slots=True)
class _Attempt:
    """One attempt under way.

    Attributes:
        budget_s: time left for its exchanges, redirects included.
        retry_after_s: what the last answer asked for.
        is_refused: robots.txt said no, or had its own attempts already: another one is no use.
        sink: takes the body of the answer, where it is too large for memory.
    """

    request: Request
    budget_s: float
    retry_after_s: float | None = None
    is_refused: bool = False
    sink: Sink | None = None


class Fetcher:
    """Makes requests over the network; thread-safe."""

    def __init__(
        self,
        config: HttpConfig,
        raw: Folder,
        *,
        read_robots: ReadRobots,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clock = clock
        self._sleep = sleep
        addresses = AddressBook(allow_hosts=config.allow_hosts, connect_to=config.connect_to)
        self._connections = Connections(
            addresses,
            ca_bundle=config.ca_bundle,
            connect_timeout_s=config.connect_timeout_s,
            read_timeout_s=config.read_timeout_s,
            max_idle=config.connections,
        )
        self._pace = Pace(
            schedules_of(raw, clock=clock),
            requests_per_second=config.requests_per_second,
            connections_per_host=config.connections_per_host,
            longest_interval_s=config.max_backoff_s,
            clock=clock,
            sleep=sleep,
        )
        self._slots = Slots(raw, in_all=config.connections, per_host=config.connections_per_host)
        self._robots = Robots(read_robots, user_agent=config.user_agent, longest_delay_s=config.max_backoff_s)

    def fetch(self, request: Request, headers: Mapping[str, str], sink: Sink | None = None) -> tuple[Target, Answer]:
        """Return where a request ended and its usable answer, after as many attempts as it takes and is allowed.

        With a `sink`, the body goes there, and an attempt asks for what the ones before it did not bring.

        Raises:
            FetchFailed: the last attempt's failure.
        """
        number = 1
        while True:
            budget_s = self._config.total_timeout_s if sink is None else self._config.file_timeout_s
            attempt = _Attempt(request, budget_s, sink=sink)
            try:
                return self._try(attempt, headers)
            except FetchFailed as problem:
                wait_s = self._wait_s(problem, attempt, number)
                if wait_s is None:
                    raise problem.at_attempt(number) from problem.__cause__
            self._sleep(wait_s)
            number += 1

    def close(self) -> None:
        """Close every idle connection."""
        self._connections.close()

    def _wait_s(self, problem: FetchFailed, attempt: _Attempt, number: int) -> float | None:
        """Return how long to wait before another attempt, or None where there is to be none."""
        if attempt.is_refused or number >= self._config.attempts or not may_help(problem.reason, problem.status):
            return None
        longest_s = self._config.max_backoff_s
        if attempt.retry_after_s is not None:
            return attempt.retry_after_s if attempt.retry_after_s <= longest_s else None
        return backoff_s(number, first_s=self._config.backoff_s, longest_s=longest_s)

    def _try(self, attempt: _Attempt, headers: Mapping[str, str]) -> tuple[Target, Answer]:
        final, answer = follow(
            parse_target(attempt.request.url),
            headers=headers,
            max_redirects=self._config.max_redirects,
            hop=partial(self._hop, attempt=attempt),
        )
        if answer.status not in SUCCESSES and not (attempt.sink is not None and answer.status == PARTIAL):
            message = f"{final.url}: status {answer.status}"
            raise FetchFailed(reason_of_status(answer.status), message, status=answer.status)
        if attempt.request.kind is Kind.IMAGE and _is_page(answer):
            raise FetchFailed(Reason.NOT_AN_IMAGE, f"{final.url}: expected an image, found an HTML page")
        return final, answer

    def _hop(self, target: Target, headers: Mapping[str, str], *, attempt: _Attempt) -> Answer:
        kind = attempt.request.kind
        if kind is Kind.IMAGE and urlsplit(target.url).path.endswith(_REMOVED):
            raise FetchFailed(Reason.REMOVED_IMAGE, f"{target.url} stands in for a deleted image")
        if kind in (Kind.PAGE, Kind.IMAGE, Kind.FILE):
            self._ask_leave(target, attempt)
        # Waiting for a slot is our wish, and outside the time limit.
        with self._pace.slot(target.host), self._slots.holding(target.host):
            started = time.monotonic()
            try:
                sink = attempt.sink
                sent = _headers(self._config, kind) | dict(headers) | dict(sink.headers() if sink else {})
                answer = ask(
                    self._connections, target, headers=sent, config=self._config, budget_s=attempt.budget_s, sink=sink
                )
            finally:
                attempt.budget_s -= time.monotonic() - started
        self._heed(target, answer, attempt)
        return answer

    def _ask_leave(self, target: Target, attempt: _Attempt) -> None:
        if not self._config.obey_robots:
            return
        try:
            delay_s = self._robots.check(target)
        except FetchFailed:
            attempt.is_refused = True
            raise
        if delay_s is not None:
            self._pace.slow_to(target.host, delay_s)

    def _heed(self, target: Target, answer: Answer, attempt: _Attempt) -> None:
        """Let a host's answer slow down what is asked of it next."""
        self._pace.heed(target.host, answer.headers)
        if answer.status in RETRIED_STATUSES:
            attempt.retry_after_s = retry_after_s(answer.headers, now=self._clock())
            if attempt.retry_after_s is not None:
                self._pace.pause(target.host, min(attempt.retry_after_s, self._config.max_backoff_s))


def _is_page(answer: Answer) -> bool:
    """Return whether an answer says that it is HTML and its bytes do not say that it is a picture."""
    is_html = answer.headers.get("content-type", "").strip().lower().startswith("text/html")
    return is_html and not answer.body.startswith(_PICTURE_STARTS)


def _headers(config: HttpConfig, kind: Kind) -> dict[str, str]:
    is_image = kind is Kind.IMAGE
    return {
        "User-Agent": config.identity,
        "Accept": "image/*,*/*;q=0.5" if is_image else "*/*",
        "Accept-Encoding": "identity" if kind in (Kind.IMAGE, Kind.FILE) else "gzip",
    }
