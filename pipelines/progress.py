"""How far a build is, seen from outside while it runs: one small file per stage and process, whose size is the count.

Beam tells its counters only when a local run is over. Appending a byte per element works from any process on this
machine, needs no lock, and survives a killed worker. Where the lake is not local there is no folder and nothing is
shown (a cluster's runner has its own page).
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.console import Passing

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts elements done, per stage; `directory` None counts nothing."""

    directory: str | None

    def advance(self, stage: str, count: int = 1) -> None:
        """Add to a stage's count."""
        if self.directory is not None:
            with suppress(OSError), Path(self.directory, f"{stage}.{os.getpid()}").open("ab", buffering=0) as file:
                file.write(b"." * count)  # a count that cannot be shown ends no build

    def counts(self) -> Counter[str]:
        """Return elements done so far, by stage."""
        done = Counter[str]()
        for path in Path(self.directory).iterdir() if self.directory is not None else ():
            done[path.name.rpartition(".")[0]] += path.stat().st_size
        return done


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
