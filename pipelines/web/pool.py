"""Many requests at once, over all hosts of this process: one pool of threads, and a queue for each host.

    requests -> stored already? -> the queue of its host -> one exchange in a thread -> done, or back into a queue

A thread is held by an exchange and by nothing else: a host that may not be asked yet, an attempt that waits for the
next, and a redirect to another host wait in queues. Hosts take turns, one connection each until they have answered.
Hosts that were slow or failed last hold half of the threads at most. One that does not answer time after time is given
up: all that is left for it fails at once. Queues of many requests lie in a file, so memory does not grow with them.
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
from pipelines.web.requests import Outcome, Request, Response, Task
from schemas.errors import BuildError
from schemas.failures import Reason

_BATCH = 20_000  # requests that are looked up in the store at once
_PIECE = 1_000  # tasks of a host's queue that are written, and read, at once
_HELD_BYTES = 64 << 20  # of results that wait to be taken: with more, no exchange is begun
_RESULT_BYTES = 1_000  # of a result without its body
_SLOW_S = 1.0  # of an exchange
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
        requests: of one source, to any hosts, in any order.
        connections: exchanges under way at once.
        connections_per_host: of them with one host.

    Raises:
        BuildError: nearly all of the first requests failed for want of a connection, for one reason.
    """
    crew = _Crew(client, connections, connections_per_host)
    try:
        yield from crew.results(requests)
    finally:
        crew.stop()
        client.flush()


@dataclass(slots=True, eq=False)
class _Host:
    """What is known of a host in this run, and its tasks, first in, first out.

    Attributes:
        head: the first tasks.
        pieces: where the next ones are in the file.
        tail: the last ones.
        busy: exchanges under way.
        strikes: exchanges in a row that no answer came of.
        given_up: what all that is left fails with.
        is_listed: whether its turn will come.
    """

    name: str
    spill: IO[bytes]
    head: deque[Task] = field(default_factory=deque)
    pieces: deque[tuple[int, int]] = field(default_factory=deque)
    tail: deque[Task] = field(default_factory=deque)
    busy: int = 0
    strikes: int = 0
    has_answered: bool = False
    is_slow: bool = False
    given_up: FetchFailed | None = None
    is_listed: bool = False

    def push(self, task: Task) -> None:
        self.tail.append(task)
        if len(self.tail) >= _PIECE:
            offset = self.spill.seek(0, os.SEEK_END)
            self.pieces.append((offset, self.spill.write(pickle.dumps(self.tail))))
            self.tail.clear()

    def pop(self) -> Task:
        if not self.head and self.pieces:
            offset, length = self.pieces.popleft()
            self.spill.seek(offset)
            self.head = pickle.loads(self.spill.read(length))
        elif not self.head:
            self.head, self.tail = self.tail, self.head
        return self.head.popleft()


class _Crew:
    """The threads, the queues of all hosts, and the thread that hands out the work."""

    def __init__(self, client: Client, connections: int, connections_per_host: int) -> None:
        self._client = client
        self._per_host = connections_per_host
        self._threads = ThreadPoolExecutor(connections, "fetch")
        self._free = connections
        self._free_for_slow = max(1, connections // 2)
        self._hosts: dict[str, _Host] = {}
        # By the moment a host may be asked, or a task goes back into its queue.
        self._turns: list[tuple[float, int, _Host, Task | None]] = []
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
            for request, found in zip(batch, self._client.look_up(batch), strict=True):
                if not isinstance(found, Task):
                    yield request, found
                    continue
                with self._changed:
                    self._left += 1
                    self._enqueue(found)
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
        """Begin every exchange whose turn has come; return the seconds until the next turn, None for no telling."""
        while self._turns and self._free and self._held_bytes < _HELD_BYTES:
            due, _, host, task = self._turns[0]
            now = self._client.clock()
            if due > now:
                return due - now
            heapq.heappop(self._turns)
            if task is not None:
                host.push(task)
            elif (host.is_slow or host.strikes) and not self._free_for_slow:
                heapq.heappush(self._turns, (now + _SLOW_S, next(self._numbers), host, None))
            else:
                host.is_listed = False
                if host.given_up is not None or self._client.pace.next_start(host.name) <= now:
                    self._begin(host)
            self._list(host)
        return None

    def _begin(self, host: _Host) -> None:
        """Begin an exchange with a host, or fail the task of one that is given up."""
        task = host.pop()
        if host.given_up is not None:
            self._finish(task, host.given_up)
            return
        self._client.pace.reserve(host.name)
        is_slow = host.is_slow or host.strikes > 0
        self._free -= 1
        self._free_for_slow -= is_slow
        host.busy += 1
        self._threads.submit(self._work, host, task, is_slow)

    def _work(self, host: _Host, task: Task, is_slow: bool) -> None:
        began = time.monotonic()
        try:
            outcome = self._client.advance(task)
        except BaseException as error:  # noqa: BLE001 - it is raised again where results are taken
            self._finished.put(error)
            return
        with self._changed:
            self._free += 1
            self._free_for_slow += is_slow
            host.busy -= 1
            self._learn(host, task.problem, time.monotonic() - began)
            if outcome is None:
                self._enqueue(task)
            else:
                self._judge(outcome)
                self._finish(task, outcome)
            self._list(host)
            self._changed.notify()

    def _learn(self, host: _Host, problem: FetchFailed | None, seconds: float) -> None:
        """Note how a host did; leave one that does not answer alone for a while, in the end for good."""
        if problem is None or problem.reason not in (Reason.CONNECTION_FAILED, Reason.TIMED_OUT):
            host.strikes, host.has_answered, host.is_slow = 0, True, seconds > _SLOW_S
            return
        host.strikes += 1
        self._client.pace.pause(host.name, backoff_s(host.strikes, first_s=self._client.config.backoff_s))
        if host.strikes >= (_GIVEN_UP_LATER if host.has_answered else _GIVEN_UP_AFTER):
            message = f"{host.name}: it does not answer in time"
            is_lost = problem.reason is Reason.CONNECTION_FAILED
            host.given_up = problem if is_lost else FetchFailed(Reason.CONNECTION_FAILED, message, "TimeoutError")

    def _judge(self, outcome: Outcome) -> None:
        """End it all where nearly all of the first requests fail alike: this machine has no way to any host."""
        if self._lost.total() >= _JUDGED:
            return
        is_lost = isinstance(outcome, FetchFailed) and outcome.reason is Reason.CONNECTION_FAILED
        self._lost[outcome.exception if isinstance(outcome, FetchFailed) and is_lost else None] += 1
        if is_lost and max(self._lost.values()) >= _HOPELESS > self._lost[None]:
            message = f"{_HOPELESS} of the first {_JUDGED} requests failed, as this one: {outcome}"
            self._finished.put(BuildError(message))

    def _enqueue(self, task: Task) -> None:
        """Put a task where its next exchange is made, now or when its wait is over."""
        name = task.target.host
        host = self._hosts.setdefault(name, _Host(name, self._spill))
        if task.ready_at > self._client.clock():
            heapq.heappush(self._turns, (task.ready_at, next(self._numbers), host, task))
            return
        host.push(task)
        self._list(host)

    def _list(self, host: _Host) -> None:
        """Give a host another turn, if there is something to ask it and it is not asked enough already."""
        most = self._per_host if host.has_answered else 1
        if not host.is_listed and host.busy < most and (host.head or host.pieces or host.tail):
            host.is_listed = True
            due = 0.0 if host.given_up is not None else self._client.pace.next_start(host.name)
            heapq.heappush(self._turns, (due, next(self._numbers), host, None))
            self._changed.notify()

    def _finish(self, task: Task, outcome: Outcome) -> None:
        self._held_bytes += _size_of(outcome)
        self._finished.put((task, outcome))


def _size_of(outcome: Outcome) -> int:
    body = outcome.body if isinstance(outcome, Response) else None
    return _RESULT_BYTES + len(body or b"")
