"""A deadline that holds even while a socket is being read: when it passes, the connection is shut down.

Time-outs of a socket begin anew with every byte; a host that sends one byte a second never meets them. One thread of a
process therefore watches the sockets of all deadlines that are running. Connections find the deadline they work under
through `current`.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class Deadline:
    """A moment after which the sockets watched are shut down; use `running` to start the clock.

    Attributes:
        ends: the moment, of the monotonic clock.
    """

    def __init__(self, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        self._watched: list[socket.socket] = []
        self._fired = False
        self._lock = threading.Lock()

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.ends - time.monotonic())

    @property
    def passed(self) -> bool:
        return self._fired or self.remaining_s == 0.0

    def watch(self, connection: socket.socket) -> None:
        """Shut a connection down when the deadline passes, also after TLS has taken its socket over."""
        descriptor = os.dup(connection.fileno())  # shutting a duplicate down reaches the original
        twin = socket.socket(connection.family, connection.type, connection.proto, fileno=descriptor)
        with self._lock:
            self._watched.append(twin)
        if self.passed:
            self.shut_down()

    @contextlib.contextmanager
    def running(self) -> Iterator[Deadline]:
        """Hold the deadline over the calling thread for a block; afterwards nothing is watched."""
        _WATCHMAN.add(self)
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)
            _WATCHMAN.remove(self)
            self._forget()

    def shut_down(self) -> None:
        """Shut down every connection that is watched now."""
        with self._lock:
            self._fired = True
            for twin in self._watched:
                with contextlib.suppress(OSError):  # already closed by the other side
                    twin.shutdown(socket.SHUT_RDWR)

    def _forget(self) -> None:
        with self._lock:
            for twin in self._watched:
                twin.close()
            self._watched.clear()


class _Watchman:
    """A thread that sleeps until the earliest of the running deadlines and shuts down what is late."""

    def __init__(self) -> None:
        self._running: set[Deadline] = set()
        self._wakes = math.inf
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.add(deadline)
            if self._thread is None or not self._thread.is_alive():  # the latter in a process that was forked
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            elif deadline.ends < self._wakes:
                self._changed.notify()

    def remove(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.discard(deadline)

    def _watch(self) -> None:
        while True:
            for deadline in self._wait():
                deadline.shut_down()

    def _wait(self) -> list[Deadline]:
        """Wait for the earliest deadline, or until there is an earlier one; return those that have passed."""
        with self._changed:
            self._wakes = min((deadline.ends for deadline in self._running), default=math.inf)
            wait_s = self._wakes - time.monotonic()
            if wait_s > 0:
                self._changed.wait(None if wait_s == math.inf else wait_s)
            late = [deadline for deadline in self._running if deadline.passed]
            self._running.difference_update(late)
            return late


_WATCHMAN = _Watchman()


def current() -> Deadline | None:
    """Return the deadline the calling thread works under, if any."""
    return _CURRENT.get()
