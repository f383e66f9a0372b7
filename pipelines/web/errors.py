"""The one error of fetching: an answer that could not be had, with its reason.

`FetchFailed` is expected and becomes a failure row; nothing else is raised for what a far host does. Errors about what
the *user* configured are `schemas.errors.ConfigError`.
"""

from __future__ import annotations

from schemas.failures import Failure, Reason, Stage


class FetchFailed(Exception):  # noqa: N818 - reads as a sentence where it is caught
    """A URL gave no usable answer.

    Attributes:
        reason: one of the closed list.
        message: one line: what was asked, what came instead. Nothing in it changes from one try to the next.
        exception: class name of the library's exception behind it, if there was one.
        status: HTTP status of the answer, if there was one.
        retry_after_s: how long the host asks to be left alone, if it does.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        exception: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, exception, status, retry_after_s)  # all positional: so it pickles
        self.reason = reason
        self.message = message
        self.exception = exception
        self.status = status
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def failure(self, record_id: str, *, stage: Stage) -> Failure:
        """Return the failure row of a record this fetch was for."""
        return Failure(stage, record_id, self.reason, self.message, self.exception)
