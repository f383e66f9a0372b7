"""A command reports to the Dagster that started it, by Dagster Pipes: its progress, then its summary or its error.

A command that Dagster did not start prints. Nothing here depends on Dagster itself: `dagster-pipes` is a module of its
own, which workers have as well.

    log               each line of progress; it is on the run's page at once
    custom message    {"summary": {...}}, what `--json` prints
    custom message    {"error": "UsageError", "message": "..."}, the nearest kind of `schemas.errors` and its one line
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from schemas import errors
from schemas.console import captured_by, paced
from schemas.errors import MultilinkError

CONTEXT_VARIABLE, MESSAGES_VARIABLE = "DAGSTER_PIPES_CONTEXT", "DAGSTER_PIPES_MESSAGES"
SUMMARY, ERROR, MESSAGE = "summary", "error", "message"


@contextmanager
def reported() -> Iterator[None]:
    """Report the command that runs while the block lasts, if Dagster waits for it."""
    if CONTEXT_VARIABLE not in os.environ:
        yield
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes, captured_by(paced(pipes.log.info)) as summaries:
        for name in (CONTEXT_VARIABLE, MESSAGES_VARIABLE):  # not for the processes that this one starts
            os.environ.pop(name, None)
        try:
            yield
        except MultilinkError as problem:
            kind = next(each for each in type(problem).__mro__ if each.__module__ == errors.__name__)
            pipes.report_custom_message({ERROR: kind.__name__, MESSAGE: str(problem)})
            raise
        finally:
            if summaries:
                pipes.report_custom_message({SUMMARY: summaries[-1]})
