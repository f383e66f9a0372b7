"""What a command shows: progress for a person on standard error, the summary on standard output.

With `--json` the summary's last line is one JSON object, for a machine.
A line that the next one takes the place of (`Passing`) is shown in place on a terminal; elsewhere, one each 10 seconds.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from time import monotonic
from typing import Any, cast

from schemas.errors import without_passwords

Say = Callable[[str], None]  # takes a line of progress
PAUSE_S = 10.0  # between two passing lines that are kept
ERASED = "\r\x1b[2K"  # the line that a terminal's cursor is in


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows of a table as text, heads among them: first column to the left, the others to the right."""
    grid = list(rows)
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in grid]


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: `1 document`, `2 documents`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Passing(str):
    """A line of progress that the next one takes the place of: how far something is."""

    __slots__ = ()


def left_of(done: int, total: int, seconds: float) -> str:
    """Return the time that is left, `h:mm:ss`, after `done` of `total` took so many seconds; "" before the first."""
    return f", {duration(seconds / done * (total - done))} left" if done else ""


def duration(seconds: float) -> str:
    """Return a time as `h:mm:ss`."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def paced(say: Say) -> Say:
    """Return what hands on every line, but passing ones `PAUSE_S` apart."""
    last = -PAUSE_S

    def hand_on(line: str) -> None:
        nonlocal last
        now = monotonic()
        if not isinstance(line, Passing) or now - last >= PAUSE_S:
            last = now if isinstance(line, Passing) else last
            say(line)

    return hand_on


def erased() -> str:
    """Return what makes a terminal forget a passing line; nothing elsewhere."""
    return ERASED if sys.stderr.isatty() else ""


def as_mapping(values: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and a dataclass by its own `to_json`, else by the names of its fields."""
    if isinstance(values, Mapping):
        return values
    if hasattr(values, "to_json"):
        return cast(Mapping[str, Any], values.to_json())
    return {each.name: getattr(values, each.name) for each in fields(values)}


class Console:
    """Where one command's words go."""

    def __init__(self, *, is_json: bool = False) -> None:
        self._is_json = is_json
        self._started = monotonic()
        self._show = self._in_place if sys.stderr.isatty() else paced(self._below)

    def say(self, line: str) -> None:
        """Show a line of progress, with the seconds since the command began."""
        self._show(type(line)(without_passwords(line)))

    def _below(self, line: str) -> None:
        print(self._timed(line), file=sys.stderr, flush=True)

    def _in_place(self, line: str) -> None:
        is_passing = isinstance(line, Passing)
        text = self._timed(line)[: shutil.get_terminal_size().columns - 1] if is_passing else self._timed(line)
        print(ERASED + text, end="" if is_passing else "\n", file=sys.stderr, flush=True)

    def _timed(self, line: str) -> str:
        return f"[{monotonic() - self._started:6.1f} s] {line}"

    def summarise(self, lines: Iterable[str], values: object) -> None:
        """Show the summary: its lines, and with `--json` its values, dataclasses among them, as the last line."""
        text = json.dumps(values, ensure_ascii=False, allow_nan=False, default=as_mapping) if self._is_json else ""
        print(erased(), end="", file=sys.stderr, flush=True)
        for line in lines:
            print(without_passwords(line))
        if self._is_json:
            print(without_passwords(text))
        sys.stdout.flush()
