"""A deadline that holds even while a socket is being read: when it passes, the connection is shut down.

Time-outs of a socket begin anew with every byte; a host that sends one byte a second never meets them. `Deadline`
therefore watches the socket from a timer's thread. Connections find the deadline they work under through `current`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class Deadline:
    """A moment after which the sockets watched are shut down; use `running` to start the clock."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._watched: list[socket.socket] = []
        self._fired = False
        self._lock = threading.Lock()

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    @property
    def passed(self) -> bool:
        return self._fired or self.remaining_s == 0.0

    def watch(self, connection: socket.socket) -> None:
        """Shut a connection down when the deadline passes, also after TLS has taken its socket over."""
        twin = socket.socket(fileno=os.dup(connection.fileno()))  # shutting a duplicate down reaches the original
        with self._lock:
            self._watched.append(twin)
        if self.passed:
            self._shut_down()

    @contextlib.contextmanager
    def running(self) -> Iterator[Deadline]:
        """Hold the deadline over the calling thread for a block; afterwards nothing is watched."""
        timer = threading.Timer(self.remaining_s, self._shut_down)
        timer.daemon = True
        timer.start()
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)
            timer.cancel()
            self._forget()

    def _shut_down(self) -> None:
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


def current() -> Deadline | None:
    """Return the deadline the calling thread works under, if any."""
    return _CURRENT.get()
