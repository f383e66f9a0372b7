"""When a host may be asked next, as all worker processes know it that share a machine and a store.

A process that looks at a host's schedule holds it alone, and what it changes is there for the next one: so the rate a
host sees is one rate, whatever the number of processes. The schedules are rows of one file beside the captures,
`<raw>/.schedules`, each under a lock of its own (`locks.py`); two hosts that share a row (1 in 2^20) are paced as one.
Where the store is not a local folder (or the system has no such locks), a schedule is this process's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.web.locks import Locks, has_ranges
from schemas.lake import Folder

FILE = ".schedules"
_ROWS = 1 << 20  # of a file with holes: a host takes a block of the disk, at most
_ROW = struct.Struct("<dddd")
_SET_BACK_S = 60.0  # a row written so much later than now is of a clock that was wrong, and counts as nothing


@dataclass(slots=True)
class Schedule:
    """What the next request to a host has to wait for; moments are POSIX times.

    Attributes:
        next_start: it starts no earlier.
        slow_interval_s: between two starts, at least, until `slow_until`.
        slow_until: see there.
    """

    next_start: float = 0.0
    slow_interval_s: float = 0.0
    slow_until: float = 0.0


class Schedules(Protocol):
    """The schedules of all hosts."""

    def changing(self, host: str) -> AbstractContextManager[Schedule]:
        """Give a host's schedule for a block, to nobody else; what is changed in it holds from then on."""
        ...


def schedules_of(raw: Folder, *, clock: Callable[[], float]) -> Schedules:
    """Return the schedules that processes share which fetch into a store, or this process's own."""
    path = raw.local
    if path is None or not are_shared(raw):
        return OwnSchedules()
    return SharedSchedules(path / FILE, Locks(raw), clock=clock)


def are_shared(raw: Folder) -> bool:
    """Return whether the processes of this machine that fetch into a store keep one pace and one number of requests."""
    return raw.local is not None and has_ranges()


class OwnSchedules:
    """Schedules in memory."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def changing(self, host: str) -> Iterator[Schedule]:
        with self._lock:
            yield self._schedules.setdefault(host, Schedule())


class SharedSchedules:
    """Schedules in a file."""

    def __init__(self, path: Path, locks: Locks, *, clock: Callable[[], float]) -> None:
        self._path = path
        self._locks = locks
        self._clock = clock
        self._guard = threading.Lock()
        self._descriptor: int | None = None

    @contextlib.contextmanager
    def changing(self, host: str) -> Iterator[Schedule]:
        row = int.from_bytes(hashlib.sha256(host.encode()).digest()[:8]) % _ROWS
        descriptor = self._open()
        with self._locks.holding(f"schedule {row}"):
            schedule = self._read(descriptor, row)
            yield schedule
            values = (schedule.next_start, schedule.slow_interval_s, schedule.slow_until)
            os.pwrite(descriptor, _ROW.pack(self._clock(), *values), row * _ROW.size)

    def _read(self, descriptor: int, row: int) -> Schedule:
        stored = os.pread(descriptor, _ROW.size, row * _ROW.size)
        if len(stored) < _ROW.size:  # beyond the file's end
            return Schedule()
        written_at, *values = _ROW.unpack(stored)
        return Schedule() if written_at > self._clock() + _SET_BACK_S else Schedule(*values)

    def _open(self) -> int:
        with self._guard:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            return self._descriptor

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
