"""Steps of the demo in processes that cost a fork: their server imports what commands import, beside the build.

A command that trains imports for five seconds. The server does that once, while the build waits for hosts, and runs
nothing itself. Each step is a child of it, so that two trainings take a processor each. Where a fork of what the server
has imported is not safe (macOS), each step imports for itself.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from orchestration.interrupts import heed_interrupts
from orchestration.project import be_quiet
from schemas.messages import BuildError, MultilinkError, Say

AT_ONCE = 2  # trainings side by side
_FORKS = sys.platform == "linux"
_IMPORTED = [
    __name__,  # first, for what it says below
    *("training.mlflow.tracked_training", "training.workflows.evaluate"),
    *("training.workflows.link", "newsroom.archive.build", "orchestration.inference.documents"),
    *("orchestration.cli", "training.loop.trainer"),
    # What PyTorch and MLflow import at the first optimiser, store and model, each step for itself: two seconds.
    *("torch._dynamo", "mlflow.store.tracking.sqlalchemy_workspace_store", "mlflow.pyfunc.scoring_server"),
    "training.mlflow.packages",
    *("mlflow.store.model_registry.sqlalchemy_workspace_store", "alembic.command", "git", "IPython"),
]
_THREADS = "OMP_NUM_THREADS"
Found = TypeVar("Found")

be_quiet()  # the server imports MLflow, too


class Processes:
    """Does work in processes of their own; several threads may have one each. `processes` gives one."""

    def __init__(self) -> None:
        self._context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
        self._running: set[BaseProcess] = set()
        self._is_ended = False

    def call(self, work: Callable[[Say], Found], say: Say, *, title: str) -> Found:
        """Call a function that can be pickled with what says its lines; its result is no string.

        Raises:
            MultilinkError: the function raised it.
            BuildError: its process was killed, or all was ended before it began.
        """
        if self._is_ended:
            raise BuildError(f"{title}: not begun, since the rest was ended")
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_do, args=(work, sending))
        process.start()
        sending.close()
        self._running.add(process)
        found: Any = None
        try:
            while isinstance(found := receiving.recv(), str):
                say(found)
        except EOFError:
            process.join()
            raise BuildError(f"{title}: its process ended with status {process.exitcode}") from None
        finally:
            process.join()
            self._running.discard(process)
        if isinstance(found, MultilinkError):
            raise found
        result: Found = found
        return result

    def end(self) -> None:
        """End what runs; nothing begins after it."""
        self._is_ended = True
        for process in tuple(self._running):
            process.terminate()


@contextmanager
def processes() -> Iterator[Processes]:
    """Give what runs steps in processes; what runs when the block is left is ended."""
    if _FORKS:
        _start_server()
    made = Processes()
    try:
        yield made
    finally:
        made.end()


def _start_server() -> None:
    """Start the server, which imports from now on; what it forks has its share of the processors as threads.

    Interrupts wait meanwhile: a child that begins with them blocked is never between two handlers.
    """
    resource_tracker.ensure_running()  # else the server's start begins with it, and ends with interrupts let through
    before = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, str(max(1, (os.cpu_count() or 1) // AT_ONCE)))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.set_forkserver_preload(_IMPORTED)
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_THREADS]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _do(work: Callable[[Say], Any], sending: Connection) -> None:
    """Do some work here; its lines, and then its result or its error, go to the parent."""
    try:
        heed_interrupts()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sending.send(work(sending.send))
    except MultilinkError as problem:
        sending.send(problem)
    except KeyboardInterrupt:
        sys.exit(1)
