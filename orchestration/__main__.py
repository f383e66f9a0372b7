"""The program `multilink`, also as `python -m orchestration`: its signals, its environment, and its exit status.

Signals are heeded before anything is imported, so that Ctrl-C is one line at any moment. The external process of an
asset (`dagster/external.py`) has all of it in common with a command.
"""

import signal
import sys
from collections.abc import Callable

from orchestration.interrupts import STOPPED, heed_interrupts


def main(work: Callable[..., object] | None = None) -> None:
    """Run the command line, or some work in its place, and exit."""
    heed_interrupts()
    try:
        status = _run(work)
    except KeyboardInterrupt:  # while what a command needs is imported
        print("multilink: stopped", file=sys.stderr)
        status = STOPPED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is the interpreter's end, which has no words for it
    if status == STOPPED:
        _leave()
    sys.exit(status)


def _run(work: Callable[..., object] | None) -> int:
    import atexit
    import gc

    gc.set_threshold(20_000)  # Python's own, 700, is a fifth of the processor's time of the imports from here on
    atexit.register(gc.freeze)  # at the end nothing is collected: of `link` that was one second of five

    from pathlib import Path

    from orchestration.cli import app, run
    from orchestration.project import be_quiet, recall

    def recalled(*arguments: object, **options: object) -> object:
        recall(Path.cwd())
        return (work or app)(*arguments, **options)

    be_quiet()
    return run(sys.argv[1:], recalled)


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
