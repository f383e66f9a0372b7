"""The program `multilink`, also as `python -m orchestration`: its signals, its environment, and its exit status.

Signals are heeded before anything is imported, so that Ctrl-C is one line at any moment. A command that Dagster started
reports to it, too (`dagster/reporting.py`).
"""

import signal
import sys

from orchestration.interrupts import STOPPED, heed_interrupts


def main() -> None:
    """Run the command line and exit."""
    heed_interrupts()
    try:
        status = _run()
    except KeyboardInterrupt:  # while what a command needs is imported
        print("multilink: stopped", file=sys.stderr)
        status = STOPPED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is the interpreter's end, which has no words for it
    if status == STOPPED:
        _leave()
    sys.exit(status)


def _run() -> int:
    import gc

    gc.set_threshold(20_000)  # Python's own, 700, is a fifth of the processor's time of the imports from here on

    from collections.abc import Iterator
    from contextlib import contextmanager
    from pathlib import Path

    from orchestration.cli import run
    from orchestration.dagster.reporting import reported
    from orchestration.project import be_quiet, recall

    @contextmanager
    def prepared() -> Iterator[None]:
        recall(Path.cwd())
        with reported():
            yield

    be_quiet()
    return run(sys.argv[1:], reporting=prepared())


def _leave() -> None:
    """End a command that was stopped: what is registered for the end runs, and no thread is waited for.

    Where an interrupt comes between the start and the stop of a library's thread, nobody ends it: Beam's sampler of
    states waited for ever.
    """
    import atexit
    import os

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
