"""How many requests are under way at once: to one host, and in all, over every worker process of a machine.

Several workers fetch the images of one host, and redirects of many hosts may lead to one. So a request holds a slot
among all processes that share the store, as locked bytes of one file beside it. Where the store is not a local folder
(or the system has no such locks), the numbers hold within a process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from pipelines.web.locks import RANGES, Openings, has_ranges, try_range
from schemas.lake import Folder

_RETRY_S = 0.005  # a full house is looked at again after so long
_ALL = "all hosts"


class Slots:
    """Slots of hosts, and of all requests."""

    def __init__(
        self, folder: Folder, *, in_all: int, per_host: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._openings = Openings(folder.local / RANGES) if folder.local is not None and has_ranges() else None
        self._in_all = in_all
        self._per_host = per_host
        self._sleep = sleep
        self._in_process = threading.BoundedSemaphore(in_all)

    @contextlib.contextmanager
    def holding(self, host: str) -> Iterator[None]:
        """Hold one of a host's slots and one of all for a block, waiting while there is none."""
        if self._openings is None:
            with self._in_process:  # a host's own number is kept by the pace
                yield
            return
        with self._openings.one() as descriptor:
            self._wait(descriptor, f"host {host}", self._per_host)
            self._wait(descriptor, _ALL, self._in_all)
            yield

    def _wait(self, descriptor: int, name: str, count: int) -> None:
        while not try_range(descriptor, f"slots of {name}", count):
            self._sleep(_RETRY_S)
