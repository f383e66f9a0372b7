"""Many requests at once from one worker, with a bounded number of them in memory."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 8  # items each thread may have waiting, and results it hands over at once
HANDED_OVER_AFTER_S = 0.1  # at the latest, where items take long


def map_concurrently(function: Callable[[T], R], items: Iterable[T], *, threads: int) -> Iterator[R]:
    """Yield `function(item)` of every item, about in the order they finish.

    Items are drawn by the calling thread, and of `2 * AHEAD * threads` at most the results are still to be yielded. An
    exception of the function is raised here, as it would be by a plain loop.
    """
    line = _Line(function)
    left, under_way = iter(items), 0
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for _ in range(threads):
            pool.submit(line.work)
        try:
            while True:
                drawn = list(itertools.islice(left, 2 * AHEAD * threads - under_way))
                for item in drawn:
                    line.waiting.put((item,))
                under_way += len(drawn)
                if not under_way:
                    return
                results, problem = line.finished.get()
                under_way -= len(results)
                yield from results
                if problem is not None:
                    raise problem
        finally:
            line.end(threads)


@dataclass(frozen=True)
class _Line(Generic[T, R]):
    """Items that wait and results that are finished, between the thread that draws and those that work.

    Results go over several at once, as every waking of the other thread interrupts this one.
    """

    function: Callable[[T], R]
    waiting: SimpleQueue[tuple[T] | None] = field(default_factory=SimpleQueue)  # None ends a thread
    finished: SimpleQueue[tuple[list[R], BaseException | None]] = field(default_factory=SimpleQueue)

    def work(self) -> None:
        """Apply the function to items until told to end."""
        results: list[R] = []
        try:
            due = time.monotonic() + HANDED_OVER_AFTER_S
            while (item := self._next(results)) is not None:
                results.append(self.function(item[0]))
                if len(results) >= AHEAD or time.monotonic() > due:
                    self._hand_over(results)
                    due = time.monotonic() + HANDED_OVER_AFTER_S
        except BaseException as problem:  # noqa: BLE001 - it is raised again where the results are awaited
            self.finished.put((results, problem))

    def _next(self, results: list[R]) -> tuple[T] | None:
        """Return what waits; before waiting for it, hand over what is finished."""
        try:
            return self.waiting.get_nowait()
        except Empty:
            self._hand_over(results)
            return self.waiting.get()

    def _hand_over(self, results: list[R]) -> None:
        if results:
            self.finished.put((results.copy(), None))
            results.clear()

    def end(self, threads: int) -> None:
        """Drop what waits, and let every thread end."""
        with contextlib.suppress(Empty):
            while True:
                self.waiting.get_nowait()
        for _ in range(threads):
            self.waiting.put(None)
