"""How far a build is, seen from outside while it runs: one small file per stage and process, whose size is the count.

Beam tells its counters only when a local run is over. Appending a byte per element works from any process on this
machine, needs no lock, and survives a killed worker. Where the lake is not local there is no folder and nothing is
shown (a cluster's runner has its own page).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts elements done, per stage; `directory` None counts nothing."""

    directory: str | None

    def advance(self, stage: str, count: int = 1) -> None:
        """Add to a stage's count."""
        if self.directory is None or count <= 0:
            return
        _Count.of(f"{self.directory}/{stage}.{os.getpid()}").add(count)

    def counts(self) -> dict[str, int]:
        """Return elements done so far, by stage."""
        totals: dict[str, int] = {}
        if self.directory is not None and Path(self.directory).is_dir():
            for path in Path(self.directory).iterdir():
                stage = path.name.rsplit(".", 1)[0]
                totals[stage] = totals.get(stage, 0) + path.stat().st_size
        return totals


class _Count:
    """A file that grows by a byte an element, opened once by each process."""

    _descriptor: int | None = None

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(path: str) -> _Count:
        return _Count(path)

    def add(self, count: int) -> None:
        assert self._descriptor is not None
        os.write(self._descriptor, b"." * count)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class Watcher:
    """Tells a line whenever the counts have changed, from a thread, while the `with` block runs."""

    def __init__(self, progress: Progress, say: Callable[[str], None], *, poll_s: float = POLL_S) -> None:
        self._progress = progress
        self._say = say
        self._poll_s = poll_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        told: dict[str, int] = {}
        while not self._stop.wait(self._poll_s):
            counts = self._progress.counts()
            if counts != told:
                self._say("  ".join(f"{stage} {count}" for stage, count in counts.items()))
                told = counts
