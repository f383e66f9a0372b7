"""Many requests at once, over all hosts of this process: one pool of threads, and a queue for each host.

    requests -> stored already? -> the queue of its host -> one exchange in a thread -> done, or back into a queue

A thread is held by an exchange and by nothing else: a host that may not be asked yet, an attempt that waits for the
next, and a redirect to another host wait in queues. Hosts take turns. An exchange that lasts longer than a second no
longer counts: another one begins in its place, so that slow and dead hosts hold up nobody (up to a number of threads).
A host that does not answer time after time is given up: all that is left for it fails at once. Queues of many requests
lie in a file, so memory does not grow with the URLs of a host.
"""

from __future__ import annotations

import heapq
import itertools
import os
import pickle
import queue
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO

from pipelines.web.answers import backoff_s
from pipelines.web.client import Client
from pipelines.web.errors import FetchFailed
from pipelines.web.requests import Request, Response, Task
from schemas.errors import BuildError
from schemas.failures import Reason

Outcome = Response | FetchFailed

_BATCH = 20_000  # requests that are looked up in the store at once
_PIECE = 1_000  # tasks of a host's queue that are written, and read, at once
_HELD_BYTES = 64 << 20  # of results that wait to be taken: with more, no exchange is begun
_RESULT_BYTES = 1_000  # of a result without its body
_SLOW_S = 1.0  # of an exchange: it counts no longer
_SLOW_SHARE = 3  # times as many slow exchanges as others
_GIVEN_UP_AFTER = 3  # exchanges in a row without an answer, of a host that never gave one
_GIVEN_UP_LATER = 12  # the same of a host that did
_JUDGED = 1_000  # first requests that were asked to their end
_HOPELESS = 950  # of them, failed for want of a connection, for one reason


def fetch_all(
    client: Client, requests: Iterable[Request], *, connections: int, connections_per_host: int
) -> Iterator[tuple[Request, Outcome]]:
    """Yield what came of every request, in order of completion; requests are drawn by the calling thread.

    Args:
        client: makes the exchanges; what is stored is visible to other processes when all is done.
        requests: to any hosts, in any order.
        connections: exchanges under way at once; slow ones are beyond that number, up to three times as many.
        connections_per_host: exchanges with one host.

    Raises:
        BuildError: nearly all of the first requests failed for want of a connection, for one reason.
    """
    crew = _Crew(client, connections, connections_per_host)
    try:
        yield from crew.results(requests)
    finally:
        crew.stop()
        client.flush()


class _Queue:
    """Tasks of a host, first in, first out: the first and the last in memory, those between in a file."""

    def __init__(self, spill: IO[bytes]) -> None:
        self._spill = spill
        self._head: deque[Task] = deque()
        self._pieces: deque[tuple[int, int]] = deque()
        self._tail: list[Task] = []

    def __bool__(self) -> bool:
        return bool(self._head or self._pieces or self._tail)

    def push(self, task: Task) -> None:
        self._tail.append(task)
        if len(self._tail) >= _PIECE:
            offset = self._spill.seek(0, os.SEEK_END)
            self._pieces.append((offset, self._spill.write(pickle.dumps(self._tail))))
            self._tail = []

    def pop(self) -> Task:
        if not self._head and self._pieces:
            offset, length = self._pieces.popleft()
            self._spill.seek(offset)
            self._head.extend(pickle.loads(self._spill.read(length)))
        elif not self._head:
            self._head, self._tail = deque(self._tail), []
        return self._head.popleft()


@dataclass(slots=True, eq=False)
class _Host:
    """What is known of a host in this run.

    Attributes:
        queue: tasks that were not begun, or were led here.
        later: tasks that wait for another attempt: (when, a number, task).
        busy: exchanges under way.
        strikes: exchanges in a row that no answer came of.
        given_up: what all that is left fails with.
        is_listed: whether it is among those whose turn will come.
    """

    name: str
    queue: _Queue
    later: list[tuple[float, int, Task]] = field(default_factory=list)
    busy: int = 0
    strikes: int = 0
    has_answered: bool = False
    given_up: FetchFailed | None = None
    is_listed: bool = False

    def pop(self, now: float) -> Task:
        """Take the next task: one whose wait is over before one that was not begun."""
        if self.later and (self.later[0][0] <= now or not self.queue):
            return heapq.heappop(self.later)[2]
        return self.queue.pop()


@dataclass(slots=True, eq=False)
class _Exchange:
    """One that was begun, when, and whether it still counts."""

    began: float
    is_over: bool = False
    is_slow: bool = False


class _Crew:
    """The threads, the queues of all hosts, and the thread that hands out the work."""

    def __init__(self, client: Client, connections: int, connections_per_host: int) -> None:
        self._client = client
        self._per_host = connections_per_host
        self._threads = ThreadPoolExecutor((1 + _SLOW_SHARE) * connections, "fetch")
        self._free = connections
        self._free_for_slow = _SLOW_SHARE * connections
        self._begun: deque[_Exchange] = deque()
        self._hosts: dict[str, _Host] = {}
        self._turns: list[tuple[float, int, _Host]] = []  # by the moment a host may be asked
        self._numbers = itertools.count()
        self._spill: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._finished: queue.SimpleQueue[tuple[Task, Outcome] | BaseException] = queue.SimpleQueue()
        self._held_bytes = 0
        self._left = 0
        self._lost: Counter[str | None] = Counter()  # exceptions of the first failed connections; None: other outcomes
        self._is_stopped = False
        self._changed = threading.Condition()
        self._dispatcher = threading.Thread(target=self._dispatch, name="fetch-dispatcher", daemon=True)
        self._dispatcher.start()

    def results(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Outcome]]:
        """Yield what came of every request."""
        left = iter(requests)
        while batch := list(itertools.islice(left, _BATCH)):
            yield from self._begin(batch)
            while not self._finished.empty():
                yield self._take()
        while self._left:
            yield self._take()

    def stop(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._dispatcher.join()
        self._threads.shutdown(cancel_futures=True)
        self._spill.close()

    def _begin(self, batch: list[Request]) -> Iterator[tuple[Request, Outcome]]:
        """Put requests into the queues of their hosts; yield those that the store answers, or that are none."""
        tasks: list[Task] = []
        for request in batch:
            try:
                tasks.append(self._client.begin(request))
            except FetchFailed as problem:
                yield request, problem
        for _, group in itertools.groupby(tasks, key=_source_of):
            alike = list(group)
            for task, found in zip(alike, self._client.find(alike), strict=True):
                if found is not None:
                    yield task.request, found
                    continue
                with self._changed:
                    self._left += 1
                    self._enqueue(task)

    def _take(self) -> tuple[Request, Outcome]:
        """Wait for the next result."""
        finished = self._finished.get()
        if isinstance(finished, BaseException):
            raise finished
        task, outcome = finished
        with self._changed:
            self._left -= 1
            self._held_bytes -= _size_of(outcome)
            self._changed.notify()
        return task.request, outcome

    def _dispatch(self) -> None:
        with self._changed:
            while not self._is_stopped:
                self._changed.wait(self._hand_out())

    def _hand_out(self) -> float | None:
        """Begin every exchange whose turn has come; return the seconds until another may, None for no telling."""
        while self._turns and self._held_bytes < _HELD_BYTES:
            due, _, host = self._turns[0]
            now = self._client.clock()
            if due > now:
                return due - now
            wait_s = None if self._free else self._discount()
            if not self._free:
                return wait_s
            heapq.heappop(self._turns)
            host.is_listed = False
            if host.given_up is not None:
                self._finish(host.pop(now), host.given_up)
            elif self._due(host) <= now:  # else it was asked meanwhile to leave it alone
                self._hand_over(host, host.pop(now))
            self._list(host)
        return None

    def _discount(self) -> float | None:
        """Let slow exchanges count no longer; return the seconds until one more is slow, None for no telling."""
        while self._begun and self._free_for_slow:
            wait_s = self._begun[0].began + _SLOW_S - time.monotonic()
            if wait_s > 0 and not self._begun[0].is_over:
                return None if self._free else wait_s
            exchange = self._begun.popleft()
            if not exchange.is_over:
                exchange.is_slow = True
                self._free += 1
                self._free_for_slow -= 1
        return None

    def _hand_over(self, host: _Host, task: Task) -> None:
        exchange = _Exchange(time.monotonic())
        self._client.pace.reserve(host.name)
        self._begun.append(exchange)
        self._free -= 1
        host.busy += 1
        self._threads.submit(self._work, host, task, exchange)

    def _work(self, host: _Host, task: Task, exchange: _Exchange) -> None:
        try:
            outcome = self._client.advance(task)
        except BaseException as error:  # noqa: BLE001 - it is raised again where results are taken
            self._finished.put(error)
            return
        with self._changed:
            exchange.is_over = True
            while self._begun and self._begun[0].is_over:
                self._begun.popleft()
            self._free += not exchange.is_slow
            self._free_for_slow += exchange.is_slow
            host.busy -= 1
            self._learn(host, task.problem)
            if outcome is None:
                self._enqueue(task)
            else:
                self._judge(outcome)
                self._finish(task, outcome)
            self._list(host)
            self._changed.notify()

    def _learn(self, host: _Host, problem: FetchFailed | None) -> None:
        """Note how a host did; leave one that does not answer alone for a while, in the end for good."""
        if problem is None or problem.reason not in (Reason.CONNECTION_FAILED, Reason.TIMED_OUT):
            host.strikes, host.has_answered = 0, True
            return
        host.strikes += 1
        self._client.pace.pause(host.name, backoff_s(host.strikes, first_s=self._client.config.backoff_s))
        if host.strikes >= (_GIVEN_UP_LATER if host.has_answered else _GIVEN_UP_AFTER):
            message = f"{host.name}: it does not answer in time"
            is_lost = problem.reason is Reason.CONNECTION_FAILED
            host.given_up = problem if is_lost else FetchFailed(Reason.CONNECTION_FAILED, message, "TimeoutError")

    def _judge(self, outcome: Outcome) -> None:
        """End it all where nearly all of the first requests fail alike: this machine has no way to any host."""
        is_lost = isinstance(outcome, FetchFailed) and outcome.reason is Reason.CONNECTION_FAILED
        if self._lost.total() < _JUDGED:
            self._lost[outcome.exception if isinstance(outcome, FetchFailed) and is_lost else None] += 1
            if is_lost and max(self._lost.values()) >= _HOPELESS > self._lost[None]:
                message = f"{_HOPELESS} of the first {_JUDGED} requests failed, as this one: {outcome}"
                self._finished.put(BuildError(message))

    def _enqueue(self, task: Task) -> None:
        """Put a task where its next exchange is made."""
        name = task.target.host
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(name, _Queue(self._spill))
        if task.ready_at > self._client.clock():
            heapq.heappush(host.later, (task.ready_at, next(self._numbers), task))
        else:
            host.queue.push(task)
        self._list(host)

    def _list(self, host: _Host) -> None:
        """Give a host another turn, if there is something to ask it and it is not asked enough already."""
        most = self._per_host if host.has_answered else 1
        if not host.is_listed and host.busy < most and (host.queue or host.later):
            host.is_listed = True
            turn = (self._due(host), next(self._numbers), host)
            heapq.heappush(self._turns, turn)
            if self._turns[0] is turn:
                self._changed.notify()

    def _due(self, host: _Host) -> float:
        if host.given_up is not None:
            return 0.0
        return max(self._client.pace.next_start(host.name), 0.0 if host.queue else host.later[0][0])

    def _finish(self, task: Task, outcome: Outcome) -> None:
        self._held_bytes += _size_of(outcome)
        self._finished.put((task, outcome))


def _source_of(task: Task) -> str:
    return task.request.source


def _size_of(outcome: Outcome) -> int:
    body = outcome.body if isinstance(outcome, Response) else None
    return _RESULT_BYTES + len(body or b"")
