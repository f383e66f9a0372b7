"""One at a time: a lock by name that holds between threads, and between processes where the store is a local folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

from schemas.lake import Folder


class Locks:
    """Locks kept as files below a local folder; elsewhere they hold within this process alone."""

    def __init__(self, folder: Folder) -> None:
        self._local = folder.local
        self._in_process: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Hold the lock of a name (a relative path) for a block."""
        with self._among_threads(name):
            if self._local is None:
                yield
                return
            with _locked_file(self._local / name):
                yield

    def _among_threads(self, name: str) -> threading.Lock:
        with self._guard:
            lock = self._in_process.get(name)
            if lock is None:
                lock = self._in_process[name] = threading.Lock()
            return lock


@contextlib.contextmanager
def _locked_file(path: Path) -> Iterator[None]:
    """Hold a lock file; the system frees it when its process dies, and it is removed after use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: whoever waits on it sees that it is no longer the file
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        os.close(descriptor)  # it was removed while this one waited
