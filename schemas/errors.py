"""Errors a person can act on, and how an address is shown.

How an address is shown: without the user and the password that it may hold.

What a command prints goes through here where it is printed: errors, progress, summaries and their JSON. Tags and
statements that name another store hold its address as it is shown.

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
"""

import re

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
