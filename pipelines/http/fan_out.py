"""Many requests at once from one worker, with a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_concurrently(function: Callable[[T], R], items: Iterable[T], *, threads: int) -> Iterator[R]:
    """Yield `function(item)` of every item, in the order they finish; at most `2 * threads` are under way.

    An exception of the function is raised here, as it would be by a plain loop.
    """
    with ThreadPoolExecutor(max_workers=threads) as pool:
        pending: set[Future[R]] = set()
        for item in items:
            pending.add(pool.submit(function, item))
            if len(pending) >= 2 * threads:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
