"""Runs a Python module as a program that ends when the process that started it ends, however that happens.

    python -m pipelines.runner.exit_with_parent PARENT_PID MODULE [ARGUMENT ...]

A build that is killed must not leave Beam's workers behind. On Linux the kernel sees to it; elsewhere they
are stopped by the build alone, where it still can. What they log before they know where to is not the user's to read.
"""

import ctypes
import logging
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel knew of the request
            sys.exit(1)
    logging.getLogger().addHandler(logging.NullHandler())
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
