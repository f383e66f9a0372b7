"""Ends every process that a run of `multilink up` started, whoever its parent is now.

All of them inherit a mark in their environment, which neither a new session nor the death of a parent takes away; on
Linux `/proc` shows it. As a program, it is the guard of `multilink up`: it sleeps until its parent ends, however that
happens, and then ends what is left.

    python -m orchestration.local.leftovers PARENT_PID MARK

Elsewhere than on Linux nothing is marked: `multilink up` ends its children, where it still can.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

MARK_VARIABLE = "MULTILINK_UP"
GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1
_PROC = Path("/proc")


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark, but this one."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found: list[int] = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0") and not _is_zombie(folder):
                found.append(int(folder.name))
    return [pid for pid in sorted(found) if pid != os.getpid()]


def end_marked(mark: str, *, grace_s: float = GRACE_S) -> int:
    """End the processes that carry a mark: asked first, forced after `grace_s`. Returns how many there were."""
    left = marked(mark)
    count = len(left)
    _signal(left, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left := marked(mark):  # one may have started another meanwhile
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return count


def main() -> None:
    """Wait for the end of the parent, then end what it left."""
    parent, mark = int(sys.argv[1]), sys.argv[2]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    while os.getppid() == parent:
        signal.sigtimedwait({signal.SIGTERM}, 1.0)
    end_marked(mark)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_zombie(folder: Path) -> bool:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main()
