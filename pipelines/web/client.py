"""The client every source fetches through: it answers from the raw store, and goes out for what is not there.

    get        one request, waiting for its answer
    advance    one exchange of a request under way: `get` and `pool.fetch_all` are made of it

A whole file is kept on disk by `downloads.py`.

    exchange -> its host allows it (origin_files.py)? -> ask (transport.py) -> redirect? -> usable?
                                                       -> it may be used (opt_outs.py)? -> stored

What is remembered, and for how long, is in `requests.py`; what an image's bytes are worth is not decided here.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from pipelines.raw import RawStore, request_key
from pipelines.settings import HttpConfig
from pipelines.web.hosts import Pace
from pipelines.web.opt_outs import SETTINGS, OptOut, honoured, read_opt_outs
from pipelines.web.origin_files import FRESH_S, OriginFiles
from pipelines.web.requests import (
    LONGEST_WAIT_S,
    NOT_MODIFIED,
    REMEMBERED_S,
    RETRIED_STATUSES,
    SUCCESSES,
    FetchFailed,
    Kind,
    Outcome,
    Request,
    Response,
    Target,
    Task,
    backoff_s,
    may_help,
    parse_target,
    posix_time,
    reason_of_status,
    redirected,
    retry_after_s,
    spelling_of,
    utc_text,
)
from pipelines.web.transport import Answer, Transport
from schemas.failures import TRANSIENT, Reason
from schemas.lake import Folder
from schemas.raw import RawEntry

_ROBOTS = "robots"
_OF_ORIGINS = (Kind.ROBOTS, Kind.WELL_KNOWN)
_FILE_TIMEOUT_S = 172_800.0  # of an attempt to fetch a whole file
MAX_REDIRECTS = 5
_OF_FILES = frozenset({206, 304, 416})  # what they mean, a sink knows
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REMOVED = "/removed.png"  # where imgur redirects a deleted image
_OF_WORDS = ("text/html", "application/xhtml", "text/plain", "application/json", "application/problem+json")
_START_BYTES = 512
_PICTURE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"RIFF")  # JPEG, PNG, GIF, WebP: some hosts mistype them
_MAKING = threading.Lock()


class Client:
    """Thread-safe. Make one per process with `process_client`: its threads share connections, pace and store."""

    def __init__(
        self,
        config: HttpConfig,
        raw: Folder,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self.raw = raw
        self.clock = clock
        self.pace = Pace(requests_per_second=config.requests_per_second, clock=clock)
        self._transport = Transport(config)
        self._sleep = sleep
        self._store = RawStore(raw)
        self._files = OriginFiles(
            lambda url, kind: self.body(self.get(url, source=_ROBOTS, kind=kind, max_age_s=FRESH_S)),
            config,
            self.pace,
            clock=clock,
        )

    def get(
        self,
        url: str,
        *,
        source: str,
        kind: Kind,
        headers: Mapping[str, str] | None = None,
        max_age_s: float | None = None,
    ) -> Response:
        """Return the answer to a GET, going out only where none is stored; `Request` says what the arguments are.

        Raises:
            FetchFailed: there is no usable answer, now or as remembered from an earlier run.
        """
        (found,) = self.look_up([Request(url, source, kind, headers or {}, max_age_s)])
        return usable(self.finish(found) if isinstance(found, Task) else found)

    def look_up(self, requests: Sequence[Request]) -> list[Outcome | Task]:
        """Return what is known of requests of one source; a task of nothing yet for each that must be asked."""
        found: list[Outcome | Task] = []
        for request in requests:
            try:
                found.append(self.begin(request))
            except FetchFailed as problem:
                found.append(problem)
        tasks = [task for task in found if isinstance(task, Task)]
        entries = iter(self._store.find_many(requests[0].source, [task.key for task in tasks]))
        return [self._unless_stored(task, next(entries)) if isinstance(task, Task) else task for task in found]

    def locate(self, requests: Sequence[Request]) -> list[str]:
        """Return the segment in which the answer to each request of one source is indexed, empty where none is."""
        keys = [request_key(request.kind, spelling_of(request.url)) for request in requests]
        return [segment or "" for segment in self._store.locate(requests[0].source, keys)]

    def begin(self, request: Request) -> Task:
        """Return a request under way, of which nothing was asked yet.

        Raises:
            FetchFailed: INVALID_URL.
        """
        target = parse_target(request.url)
        return Task(request, request_key(request.kind, target.url), target, target, self._attempt_s(request))

    def finish(self, task: Task) -> Outcome:
        """Make the exchanges of a request, waiting between them, and return what came of it."""
        while True:
            if task.request.kind not in _OF_ORIGINS:  # which are asked for at once
                self._sleep(max(self.pace.reserve(task.target.host), task.ready_at - self.clock()))
            outcome = self.advance(task)
            if outcome is not None:
                return outcome

    def advance(self, task: Task) -> Outcome | None:
        """Make one exchange; return what came of the request, None where it goes on (no earlier than `ready_at`)."""
        task.problem = None
        try:
            return self._exchange(task)
        except FetchFailed as raised:
            problem = task.problem = FetchFailed(*raised.args)  # its traceback would keep the body alive
        wait_s = self._wait_s(problem, task)
        if wait_s is None:
            return self._give_up(task, problem)
        task.attempt += 1
        task.ready_at = self.clock() + wait_s
        task.target, task.budget_s = task.home, self._attempt_s(task.request)
        task.visited, task.opt_outs = [], []
        return None

    def body(self, response: Response) -> bytes:
        """Return a response's body.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        return response.body if response.body is not None else self._store.body(response.source, response.entry)

    def refresh(self) -> None:
        """Let the next lookups find what other processes have made visible until now."""
        self._store.refresh()

    def flush(self) -> None:
        """Make what was stored visible to other processes."""
        self._store.close()

    def _attempt_s(self, request: Request) -> float:
        return _FILE_TIMEOUT_S if request.kind is Kind.FILE else self.config.total_timeout_s

    def _exchange(self, task: Task) -> Response | None:
        request, target = task.request, task.target
        if request.kind is Kind.IMAGE and urlsplit(target.url).path.endswith(_REMOVED):
            raise FetchFailed(Reason.REMOVED_IMAGE, f"{target.url} replaces a deleted image")
        if request.kind in (Kind.PAGE, Kind.IMAGE, Kind.FILE):
            self._files.check(target)
        elif request.kind is Kind.WELL_KNOWN:
            self.pace.reserve(target.host)  # what follows waits for it
        started = time.monotonic()
        answer = self._transport.ask(target, self._headers(task), budget_s=task.budget_s, sink=task.sink)
        task.budget_s -= time.monotonic() - started
        self.pace.heed(target.host, answer.headers)
        if answer.status in _REDIRECTS:
            self._heed(task, answer)
            task.target = _next_target(task, answer)
            return None
        is_known = answer.status == NOT_MODIFIED and task.stored is not None
        is_of_file = answer.status in _OF_FILES and task.sink is not None
        if answer.status not in SUCCESSES and not is_known and not is_of_file:
            raise self._refused(target, answer)
        if request.kind is Kind.IMAGE and _is_words(answer):
            raise FetchFailed(Reason.NOT_AN_IMAGE, f"{target.url}: expected an image, found words or nothing")
        self._heed(task, answer)
        return self._keep(task, answer)

    def _heed(self, task: Task, answer: Answer) -> None:
        """Note what a page or an image, or a redirect to it, says against its use.

        Raises:
            FetchFailed: it says what is honoured.
        """
        if task.request.kind not in (Kind.PAGE, Kind.IMAGE):
            return
        page = answer.body if task.request.kind is Kind.PAGE and _media_type(answer).startswith(_OF_WORDS[:2]) else b""
        found = read_opt_outs(answer.headers, page, product=self.config.product, now=self.clock())
        if (refused := honoured(found, self.config)) is not None:
            raise FetchFailed(refused.reason, f"{task.target.url}: {refused.words}", None, answer.status)
        task.opt_outs += map(str, found)

    def _headers(self, task: Task) -> dict[str, str]:
        kind, stored = task.request.kind, task.stored
        headers = {
            "User-Agent": self.config.identity,
            "Accept": "image/*,*/*;q=0.5" if kind is Kind.IMAGE else "*/*",
            "Accept-Encoding": "identity" if kind in (Kind.IMAGE, Kind.FILE) else "gzip",
        }
        if stored is not None and stored.final_url == task.target.url:
            known = {"If-None-Match": stored.etag, "If-Modified-Since": stored.last_modified}
            headers |= {name: value for name, value in known.items() if value}
        headers |= task.headers()
        return headers | dict(task.request.headers) if task.target.origin == task.home.origin else headers

    def _refused(self, target: Target, answer: Answer) -> FetchFailed:
        """Return the failure that a status stands for, and leave its host alone for as long as it asks."""
        reason, wait_s = reason_of_status(answer.status), None
        if answer.status in RETRIED_STATUSES:
            wait_s = retry_after_s(answer.headers, now=self.clock())
            self.pace.pause(target.host, wait_s or 0.0)
        text = "an error of its host" if reason in TRANSIENT else f"status {answer.status}"
        return FetchFailed(reason, f"{target.url}: {text}", None, answer.status, wait_s)

    def _wait_s(self, problem: FetchFailed, task: Task) -> float | None:
        """Return how long to wait before another attempt, None where there is to be none."""
        is_last = task.attempt >= self.config.attempts or task.request.kind in _OF_ORIGINS
        if is_last or not may_help(problem.reason, problem.status):
            return None
        if problem.retry_after_s is not None:
            return problem.retry_after_s if problem.retry_after_s <= LONGEST_WAIT_S else None
        return backoff_s(task.attempt, first_s=self.config.backoff_s)

    def _keep(self, task: Task, answer: Answer) -> Response:
        """Store an answer, or note that the one stored before still holds."""
        now = utc_text(self.clock())
        if answer.status == NOT_MODIFIED and task.stored is not None:
            renewed = replace(task.stored, fetched_at=now)
            self._store.note(task.request.source, renewed)
            return Response(renewed, task.request.source, True)
        entry = RawEntry(
            key=task.key,
            kind=task.request.kind,
            url=task.home.url,
            fetched_at=now,
            final_url=task.target.url,
            status=answer.status,
            media_type=answer.headers.get("content-type"),
            etag=answer.headers.get("etag"),
            last_modified=answer.headers.get("last-modified"),
            opt_outs="\n".join(dict.fromkeys(task.opt_outs)) or None,
        )
        if task.sink is None:
            entry = self._store.add(task.request.source, entry, answer.headers, answer.body)
        return Response(entry, task.request.source, False, answer.body)

    def _give_up(self, task: Task, problem: FetchFailed) -> Outcome:
        """Remember a failure; where its host is in trouble and an older answer is there, return that."""
        request, reason = task.request, problem.reason
        if task.stored is not None and reason in TRANSIENT:
            return Response(task.stored, request.source, True)
        is_ours = request.kind is Kind.FILE or (request.kind in _OF_ORIGINS and reason in TRANSIENT)
        has_wrong_key = reason is Reason.FORBIDDEN and bool(request.headers)
        if reason in REMEMBERED_S and not is_ours and not has_wrong_key:
            entry = RawEntry(
                key=task.key,
                kind=request.kind,
                url=task.home.url,
                fetched_at=utc_text(self.clock()),
                status=problem.status,
                reason=reason,
                message=problem.message,
                exception=problem.exception,
                limit=self._limit_of(reason),
            )
            self._store.note(request.source, entry)
        return problem

    def _unless_stored(self, task: Task, entry: RawEntry | None) -> Outcome | Task:
        """Return what an entry of the store says of a request, the task where there is none that holds."""
        if entry is None:
            return task
        asked = posix_time(entry.fetched_at)
        age_s = self.clock() - asked
        if entry.reason is not None:
            reason = Reason(entry.reason)
            is_recent = age_s <= REMEMBERED_S.get(reason, 0.0) and asked >= self.config.ask_again_before
            holds = is_recent and entry.limit == self._limit_of(reason)
            return FetchFailed(reason, entry.message or "", entry.exception, entry.status) if holds else task
        opt_outs = list(
            map(OptOut.parse, (entry.opt_outs or "").splitlines())
        )  # and was not honoured when it was stored
        if (refused := honoured(opt_outs, self.config)) is not None:
            holds = age_s <= REMEMBERED_S[refused.reason]
            return (
                FetchFailed(refused.reason, f"{entry.final_url}: {refused.words}", None, entry.status)
                if holds
                else task
            )
        max_age_s = task.request.max_age_s
        if max_age_s is None:
            max_age_s = math.inf if task.request.kind is Kind.IMAGE else self.config.page_max_age_s
        if age_s <= max_age_s:
            return Response(entry, task.request.source, True)
        task.stored = entry
        return task

    def _limit_of(self, reason: Reason) -> str | None:
        """Return the configured limit behind a failure: with another limit, the failure no longer holds."""
        limits = {
            Reason.TOO_LARGE: f"http.max_bytes={self.config.max_bytes}",
            Reason.ADDRESS_REFUSED: f"http.allow_hosts={','.join(sorted(self.config.allow_hosts))}",
        }
        if reason in SETTINGS:
            return f"http.{SETTINGS[reason]}={getattr(self.config, SETTINGS[reason])}"
        return limits.get(reason)


def process_client(config: HttpConfig, raw: Folder) -> Client:
    """Return this process's one client for a configuration and a store, so that all its threads share connections."""
    with _MAKING:  # a cache alone would let two threads make one each
        return _client(config, raw, os.getpid())


@lru_cache(maxsize=8)
def _client(config: HttpConfig, raw: Folder, _process: int) -> Client:
    return Client(config, raw)


def usable(outcome: Outcome) -> Response:
    """Return a response, or raise the failure in its place."""
    if isinstance(outcome, FetchFailed):
        raise outcome
    return outcome


def _next_target(task: Task, answer: Answer) -> Target:
    """Return where a redirect leads."""
    task.visited.append(task.target.url)
    location = answer.headers.get("location")
    if location is None:
        raise FetchFailed(Reason.HTTP_ERROR, f"{task.target.url}: a redirect without a Location", None, answer.status)
    target = redirected(task.target, location)
    if target.url in task.visited or len(task.visited) > MAX_REDIRECTS:
        first = task.visited[0]
        raise FetchFailed(Reason.TOO_MANY_REDIRECTS, f"{first}: a loop or more than {MAX_REDIRECTS} redirects")
    return target


def _is_words(answer: Answer) -> bool:
    """Return whether there is no picture: a page, what an interface says, or nothing, as hosts answer in an outage."""
    is_binary = b"\0" in answer.body[:_START_BYTES] or answer.body.startswith(_PICTURE_STARTS)
    return not answer.body or (not is_binary and _media_type(answer).startswith(_OF_WORDS))


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").strip().lower()
