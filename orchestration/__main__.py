"""The program `multilink`, also as `python -m orchestration`: its environment, its signals, and its exit status.

A command that Dagster started reports to it, too (`dagster/reporting.py`).
"""

import logging
import signal
import sys
from pathlib import Path

from orchestration.cli import note_interrupt, print_error, run
from orchestration.dagster.reporting import reported
from orchestration.project import be_quiet, recall
from schemas.errors import MultilinkError


def main() -> None:
    """Run the command line and exit."""
    be_quiet()
    logging.getLogger().addFilter(_is_of_interest)
    logging.getLogger("apache_beam.io.filesystems").setLevel(logging.ERROR)  # which clouds it has no client of
    for number in (signal.SIGINT, signal.SIGTERM):  # temporary files are removed after either
        signal.signal(number, note_interrupt)
    try:
        recall(Path.cwd())
    except MultilinkError as problem:
        sys.exit(print_error(str(problem), problem.exit_status))
    sys.exit(run(sys.argv[1:], reporting=reported()))


def _is_of_interest(record: logging.LogRecord) -> bool:
    """Return whether a log line concerns the user; Beam's notes on clouds that are not used do not."""
    return not record.getMessage().startswith("apitools not found")


if __name__ == "__main__":
    main()
