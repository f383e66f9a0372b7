"""One at a time: a lock by name that holds between threads, and between processes where the store is a local folder.

Between processes a name is a byte of one file, `<folder>/.locks`, locked for as long as the file description that asked
for it is open (Linux's `F_OFD_SETLKW`): nothing is written, made or removed, and what a killed process held is free.
Where a system has no such locks, a name is a file of its own for as long as it is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from schemas.lake import Folder

RANGES = ".locks"  # the file, in the folder the locks are for
_TRY_RANGE: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_WAIT_FOR_RANGE: int | None = getattr(fcntl, "F_OFD_SETLKW", None)


class _BetweenProcesses(Protocol):
    def holding(self, name: str) -> AbstractContextManager[None]: ...


class Locks:
    """Locks kept below a local folder; elsewhere they hold within this process alone."""

    def __init__(self, folder: Folder) -> None:
        self._between_processes = _between_processes(folder.local)
        self._in_process: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Hold the lock of a name (a relative path) for a block."""
        with self._among_threads(name):
            if self._between_processes is None:
                yield
                return
            with self._between_processes.holding(name):
                yield

    def _among_threads(self, name: str) -> threading.Lock:
        with self._guard:
            lock = self._in_process.get(name)
            if lock is None:
                lock = self._in_process[name] = threading.Lock()
            return lock


def _between_processes(folder: Path | None) -> _BetweenProcesses | None:
    if folder is None:
        return None
    return LockedRanges(folder / RANGES) if has_ranges() else LockedFiles(folder)


def has_ranges() -> bool:
    """Return whether this system has locks of ranges that belong to an open file, not to a process."""
    return _WAIT_FOR_RANGE is not None


class LockedRanges:
    """Locks of single bytes of one file; names that share a byte wait for each other (1 in 2^62)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._process = 0
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Hold the lock of a name against every other opening of the file."""
        descriptor, place = self._open(), _place(name)
        _set(descriptor, fcntl.F_WRLCK, place)
        try:
            yield
        finally:
            _set(descriptor, fcntl.F_UNLCK, place)

    def _open(self) -> int:
        """Return this process's own description of the file; one inherited by a fork would be its parent's."""
        with self._guard:
            if self._descriptor is None or self._process != os.getpid():
                self._descriptor = _open_ranges(self._path)
                self._process = os.getpid()
            return self._descriptor

    def __del__(self) -> None:
        if self._descriptor is not None and self._process == os.getpid():
            os.close(self._descriptor)


class Openings:
    """Descriptions of one file, kept for reuse: each holds ranges against all the others, of this process too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[int] = []
        self._process = os.getpid()

    @contextlib.contextmanager
    def one(self) -> Iterator[int]:
        """Give a description for a block to lock ranges of; afterwards they are free."""
        descriptor = self._take()
        try:
            yield descriptor
        finally:
            _set(descriptor, fcntl.F_UNLCK, 0, length=0)
            self._idle.append(descriptor)

    def _take(self) -> int:
        if self._process != os.getpid():  # those inherited by a fork would be its parent's, too
            self._idle, self._process = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return _open_ranges(self._path)

    def __del__(self) -> None:
        if self._process == os.getpid():
            for descriptor in self._idle:
                os.close(descriptor)


def try_range(descriptor: int, name: str, count: int) -> bool:
    """Lock one of a name's `count` bytes against every other description; False where all are held."""
    assert _TRY_RANGE is not None  # see `has_ranges`
    for place in range(_place(name), _place(name) + count):
        with contextlib.suppress(BlockingIOError):
            _set(descriptor, fcntl.F_WRLCK, place, how=_TRY_RANGE)
            return True
    return False


def _open_ranges(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _place(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 2


def _set(descriptor: int, kind: int, place: int, *, length: int = 1, how: int | None = _WAIT_FOR_RANGE) -> None:
    """Lock or unlock bytes of a file (`struct flock` of fcntl(2), 64 bits); a length of 0 reaches to its end."""
    assert how is not None  # see `has_ranges`
    fcntl.fcntl(descriptor, how, struct.pack("hhqqi4x", kind, os.SEEK_SET, place, length, 0))


class LockedFiles:
    """Locks that are files; the system frees one when its process dies, and it is removed after use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Hold the lock file of a name."""
        path = self._folder / name
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
