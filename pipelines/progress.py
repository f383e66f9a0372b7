"""How far a local build is, seen from outside while it runs: a small file a stage and worker, with its count.

Beam tells its counters only when a local run is over. A count is written when it begins, once a second, and when a
bundle ends; what cannot be written is not shown, and ends no build. A cluster's runner shows Beam's counters itself.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.console import Passing

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where counts are written; `directory` None: nowhere."""

    directory: str | None

    def counts(self) -> Counter[str]:
        """Return elements done so far, by stage."""
        done = Counter[str]()
        with suppress(OSError, ValueError):
            for path in Path(self.directory).iterdir() if self.directory is not None else ():
                done[path.suffix.removeprefix(".")] += int(path.read_text() or 0)
        return done


class Shown:
    """The count of a stage in one worker."""

    def __init__(self, directory: str, stage: str) -> None:
        self._path = Path(directory) / f"{os.urandom(8).hex()}.{stage}"
        self._count, self._written_at = 0, 0.0

    def add(self) -> None:
        """Count one more element."""
        self._count += 1
        if time.monotonic() - self._written_at > POLL_S:
            self.write()

    def write(self) -> None:
        """Write the count, if that can be."""
        self._written_at = time.monotonic()
        with suppress(OSError):
            self._path.write_text(f"{self._count}")


@contextmanager
def watched(progress: Progress, say: Callable[[str], None], *, poll_s: float = POLL_S) -> Iterator[None]:
    """Tell a line whenever the counts have changed, from a thread, while the `with` block runs."""
    stop = threading.Event()

    def watch() -> None:
        shown = Counter[str]()
        while not stop.wait(poll_s):
            counts = progress.counts()
            if counts != shown:
                say(Passing("  ".join(f"{stage} {count}" for stage, count in counts.items())))
                shown = counts

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
