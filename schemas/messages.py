"""What a person reads: errors that can be acted on, lines of progress, numbers and tables in words.

An address is shown without the user and the password that it may hold (`without_passwords`). All that a command prints
goes through that: errors, progress, summaries and their JSON. Tags and statements that name another store hold its
address as it is shown.

Each error ends a command with an exit status.

    MultilinkError
    |-- UsageError            exit status 2: the caller's mistake
    |   |-- ConfigError       a configuration key or value
    |   `-- NotFoundError     a data set, version, model or file that is not there
    |-- BuildError            exit status 1: a build or a training run that could not be finished
    |   `-- IntegrityError    bytes on disk that differ from what their manifest says
    `-- GateError             exit status 1: a check that failed (promotion, verification)

A message is one line: what was expected, what was found, where, and what to do. It has no user and no password of an
address.

A line of progress that the next one takes the place of (`Passing`) is shown in place on a terminal; elsewhere, one each
10 seconds.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

_USER = re.compile(r"://[^/?#\s'\"]+@")
_NAMES = r"[\w-]*password|[\w-]*secret[\w-]*|[\w-]*token|access_key|api_?key|sig|signature"
_SECRET = re.compile(rf"([?&;](?:{_NAMES})=)[^&;\s'\"]+", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """Return a text in which no address has a user, a password, or one among its parameters.

    >>> without_passwords("postgresql://ann:secret@db/mlflow?password=secret&sslmode=require")
    'postgresql://***@db/mlflow?password=***&sslmode=require'
    """
    return _SECRET.sub(r"\1***", _USER.sub("://***@", text))


def as_arguments(option: str, address: str) -> tuple[str, ...]:
    """Return an option with its address for a process's command; none where the address has a user or a password.

    Then the environment names it: arguments are in lists of processes and of jobs, and in manifests.
    """
    return (option, address) if address == without_passwords(address) else ()


class MultilinkError(Exception):
    """Base of every error this project raises on purpose."""

    exit_status = 1

    def __init__(self, *parts: object) -> None:
        super().__init__(*(without_passwords(part) if isinstance(part, str) else part for part in parts))


class UsageError(MultilinkError):
    """The caller asked for something that cannot be done as asked."""

    exit_status = 2


class ConfigError(UsageError):
    """A configuration key is unknown, or its value has the wrong type or breaks a rule."""


class NotFoundError(UsageError):
    """A named thing does not exist where it was looked for."""


class BuildError(MultilinkError):
    """A build or a training run could not be finished."""


class IntegrityError(BuildError):
    """Stored bytes are not what their manifest says they are."""


class GateError(MultilinkError):
    """A check that guards a later step failed."""


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
