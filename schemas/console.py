"""What a command shows: progress for a person on standard error, the summary on standard output.

With `--json` the summary's last line is one JSON object, for a machine. A caller in this process may hear both instead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Say = Callable[[str], None]  # takes a line of progress
_LISTENER: ContextVar[tuple[Say, list[dict[str, Any]]] | None] = ContextVar("listener", default=None)


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows of a table as text, heads among them: first column to the left, the others to the right."""
    grid = list(rows)
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in grid]


class Console:
    """Where one command's words go."""

    def __init__(self, *, is_json: bool = False) -> None:
        self._is_json = is_json
        self._started = time.monotonic()
        self._listener = _LISTENER.get()

    def say(self, line: str) -> None:
        """Show a line of progress, with the seconds since the command began."""
        if self._listener is not None:
            self._listener[0](line)
        else:
            print(f"[{time.monotonic() - self._started:6.1f} s] {line}", file=sys.stderr, flush=True)

    def summarise(self, lines: Iterable[str], values: Mapping[str, Any]) -> None:
        """Show the summary: its lines, and with `--json` its values as the last line."""
        text = json.dumps(values, ensure_ascii=False, allow_nan=False) if self._is_json else "{}"
        if self._listener is not None:
            self._listener[1].append(json.loads(text))
            return
        for line in lines:
            print(line)
        if self._is_json:
            print(text)
        sys.stdout.flush()


@contextmanager
def heard_by(say: Say) -> Iterator[list[dict[str, Any]]]:
    """Give the progress of commands to `say`, and what they tell with `--json` to a list, while the block lasts.

    Neither is printed.
    """
    summaries: list[dict[str, Any]] = []
    token = _LISTENER.set((say, summaries))
    try:
        yield summaries
    finally:
        _LISTENER.reset(token)
