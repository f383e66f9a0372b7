"""Many requests at once, over all hosts of this process: one pool of threads, and a queue for each host.

    requests -> stored already? -> the queue of its host -> one exchange in a thread -> done, or back into a queue

A thread is held by an exchange and by nothing else: a host that may not be asked yet, an attempt that waits for the
next, and a redirect to another host wait in queues. Hosts take turns, one connection each until they have answered.
Hosts that were slow or failed last hold half of the threads at most; others like them wait in line for one of these.
One that does not answer time after time is given up: all that is left for it fails at once. Queues of many requests
lie in a file, so memory does not grow with them.

All of this is decided by the thread that takes the results, whenever it asks for the next one. A thread that is through
with its exchange is free again only when that was looked at, so results do not pile up.
"""

import contextlib
import heapq
import itertools
import os
import pickle
import queue
import tempfile
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO

from pipelines.web.client import Client
from pipelines.web.requests import FetchFailed, Outcome, Request, Task, backoff_s
from schemas.failures import Reason
from schemas.messages import BuildError

_BATCH = 20_000  # requests that are looked up in the store at once
_PIECE = 1_000  # tasks of a host's queue that are written, and read, at once
_MOST_HOSTS = 20_000  # beyond them, those that nothing is left for are forgotten
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
    with contextlib.closing(Crew(client, connections=connections, connections_per_host=connections_per_host)) as crew:
        yield from crew.results(requests)


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

    @property
    def has_tasks(self) -> bool:
        return bool(self.head or self.pieces or self.tail)

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


@dataclass(slots=True, eq=False)
class _Exchange:
    """One under way with a host; `is_slow` if it holds one of the threads for hosts that are."""

    host: _Host
    task: Task
    is_slow: bool
    outcome: Outcome | None = None
    seconds: float = 0.0


class Crew:
    """The threads, and the queues of all hosts. What was begun with one list of requests goes on with the next one."""

    def __init__(self, client: Client, *, connections: int, connections_per_host: int) -> None:
        self._client = client
        client.refresh()  # a crew may take over from one that was killed
        self._threads = ThreadPoolExecutor(connections, "fetch")
        self._spill = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`, or with a worker that Beam gives up
        weakref.finalize(self, self._spill.close)
        self._per_host = connections_per_host
        self._free = connections
        self._free_for_slow = max(1, connections // 2)
        self._hosts: dict[str, _Host] = {}
        # By the moment a host may be asked, or a task goes back into its queue.
        self._turns: list[tuple[float, int, _Host, Task | None]] = []
        self._held_back: deque[_Host] = deque()  # slow ones, for want of a thread for such
        self._numbers = itertools.count()
        self._finished: queue.SimpleQueue[Future[_Exchange]] = queue.SimpleQueue()
        self._left = 0
        self._lost: Counter[str | None] = Counter()  # exceptions of the first failed connections; None: other outcomes

    def results(self, requests: Iterable[Request], *, carried: int = 0) -> Iterator[tuple[Request, Outcome]]:
        """Yield what came of requests, those of earlier calls among them, until at most `carried` are under way."""
        left = iter(requests)
        while batch := list(itertools.islice(left, _BATCH)):
            if len(self._hosts) > _MOST_HOSTS:
                kept = {host for _, _, host, _ in self._turns}  # one may have no task but one that waits for its turn
                self._hosts = {
                    name: host for name, host in self._hosts.items() if host.busy or host.has_tasks or host in kept
                }
            for request, found in zip(batch, self._client.look_up(batch), strict=True):
                if isinstance(found, Task):
                    self._left += 1
                    self._enqueue(found)
                    yield from self._go_on(wait=False)
                else:
                    yield request, found
        while self._left > carried:
            yield from self._go_on(wait=True)

    def close(self) -> None:
        """End the threads; what was stored is then visible to other processes."""
        self._threads.shutdown(cancel_futures=True)
        self._spill.close()
        self._client.flush()

    def _go_on(self, *, wait: bool) -> Iterator[tuple[Request, Outcome]]:
        """Begin what may begin, and yield what came of a request, if an exchange is over that was its last."""
        pause_s = self._hand_out()
        try:
            exchange = self._finished.get(timeout=pause_s if wait else 0.0).result()
        except queue.Empty:
            return
        host, task, outcome = exchange.host, exchange.task, exchange.outcome
        self._free += 1
        self._free_for_slow += exchange.is_slow
        host.busy -= 1
        if outcome is None or outcome is not host.given_up:  # it was asked
            self._learn(host, task.problem, exchange.seconds)
            self._judge(outcome)
        if outcome is None:
            self._enqueue(task)
        self._list(host)
        if outcome is not None:
            self._left -= 1
            self._hand_out()  # for as long as the caller is busy with this one
            yield task.request, outcome

    def _hand_out(self) -> float | None:
        """Begin every exchange whose turn has come; return the seconds until the next turn, None for no telling."""
        while self._free and (self._turns or (self._held_back and self._free_for_slow)):
            now = self._client.clock()
            if self._held_back and self._free_for_slow:
                host, task = self._held_back.popleft(), None
            else:
                due, _, host, task = self._turns[0]
                if due > now:
                    return due - now
                heapq.heappop(self._turns)
            is_slow = host.given_up is None and (host.is_slow or host.strikes > 0)
            if task is not None:
                host.push(task)
            elif is_slow and not self._free_for_slow:
                self._held_back.append(host)
            else:
                host.is_listed = False
                if host.given_up is not None or self._client.pace.next_start(host.name) <= now:
                    self._begin(host, is_slow)
            self._list(host)
        return None

    def _begin(self, host: _Host, is_slow: bool) -> None:
        """Begin an exchange with a host; with one that is given up, it is over at once."""
        if host.given_up is None:
            self._client.pace.reserve(host.name)
        self._free -= 1
        self._free_for_slow -= is_slow
        host.busy += 1
        exchange = _Exchange(host, host.pop(), is_slow)
        self._threads.submit(self._make, exchange).add_done_callback(self._finished.put)

    def _make(self, exchange: _Exchange) -> _Exchange:
        began = time.monotonic()
        exchange.outcome = exchange.host.given_up or self._client.advance(exchange.task)
        exchange.seconds = time.monotonic() - began
        return exchange

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

    def _judge(self, outcome: Outcome | None) -> None:
        """End it all where nearly all of the first requests fail alike: this machine has no way to any host."""
        if outcome is None or self._lost.total() >= _JUDGED:
            return
        is_lost = isinstance(outcome, FetchFailed) and outcome.reason is Reason.CONNECTION_FAILED
        self._lost[outcome.exception if isinstance(outcome, FetchFailed) and is_lost else None] += 1
        if is_lost and max(self._lost.values()) >= _HOPELESS > self._lost[None]:
            raise BuildError(f"{_HOPELESS} of the first {_JUDGED} requests failed alike, such as: {outcome}")

    def _enqueue(self, task: Task) -> None:
        """Put a task at the end of the queue of its next exchange, now or when its wait is over.

        Not at the front: of a host that was down for a while, most is asked for the second time when it is up again.
        """
        name = task.target.host
        host = self._hosts.setdefault(name, _Host(name, self._spill))
        if task.ready_at > self._client.clock():
            heapq.heappush(self._turns, (task.ready_at, next(self._numbers), host, task))
        else:
            host.push(task)
            self._list(host)

    def _list(self, host: _Host) -> None:
        """Give a host another turn, if there is something to ask it and it is not asked enough already."""
        most = self._per_host if host.has_answered else 1
        if not host.is_listed and host.busy < most and host.has_tasks:
            host.is_listed = True
            due = 0.0 if host.given_up is not None else self._client.pace.next_start(host.name)
            heapq.heappush(self._turns, (due, next(self._numbers), host, None))
