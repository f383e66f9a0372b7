"""What a person is told: lines of progress, numbers and tables in words.

A line that the next one takes the place of (`Passing`) is shown in place on a terminal; elsewhere, one each 10 seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from time import monotonic

Say = Callable[[str], None]  # takes a line of progress
PAUSE_S = 10.0  # between two passing lines that are kept


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
