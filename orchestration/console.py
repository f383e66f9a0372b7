"""What a command shows: progress for a person on standard error, the summary on standard output.

With `--json` the summary's last line is one JSON object, for a machine.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from time import monotonic
from typing import Any, cast

from schemas.messages import Passing, paced, without_passwords

ERASED = "\r\x1b[2K"  # the line that a terminal's cursor is in


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
        self._show = (
            self._in_place
            if sys.stderr.isatty()
            else paced(lambda line: print(self._timed(line), file=sys.stderr, flush=True))
        )

    def say(self, line: str) -> None:
        """Show a line of progress, with the seconds since the command began."""
        self._show(type(line)(without_passwords(line)))

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
