r"""Errors a person can act on, and the exit status each one ends a command with.

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

from schemas.addresses import without_passwords


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
