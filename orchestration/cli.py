"""The one command, `multilink`: runs a command of `commands.py` and turns errors into one line and an exit status.

0   done
1   a build, a run or a gate said no
2   the caller's mistake: an unknown option or key, a file or version that is not there
"""

import logging
import os
import signal
import sys
from pathlib import Path

import typer

from orchestration.commands import app
from orchestration.pipes import reported
from orchestration.project import recall
from schemas.console import erased
from schemas.errors import MultilinkError

# Nothing is reported to anyone unless the user turns it on, and no bar of another library runs across our lines.
QUIET = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def main() -> None:
    """Run the command line and exit."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger().addFilter(_is_worth_saying)
    logging.getLogger("apache_beam.io.filesystems").setLevel(logging.ERROR)  # which clouds it has no client of
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is temporary goes, as after Ctrl-C
    try:
        recall(Path.cwd())
    except MultilinkError as problem:
        sys.exit(_tell(str(problem), problem.exit_status))
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str], commands: typer.Typer = app) -> int:
    """Run one command and return its exit status; an expected error is told as one line on standard error."""
    try:
        with reported():
            status = commands(arguments, prog_name="multilink", standalone_mode=False)
    except MultilinkError as problem:
        return _tell(str(problem), problem.exit_status)
    except typer.TyperException as problem:
        return _tell(problem.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _tell("interrupted", 130)
    return status if isinstance(status, int) else 0


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Return whether a log line concerns the user; Beam's notes on clouds that are not used do not."""
    return not record.getMessage().startswith("apitools not found")


def _tell(message: str, status: int) -> int:
    print(erased(), end="", file=sys.stderr)
    if message.startswith("Usage:"):  # what a group without a command says: its help, a page
        print(message, file=sys.stderr)
    elif message:
        print(f"multilink: {' '.join(message.split())}", file=sys.stderr)
    return status
