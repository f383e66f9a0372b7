"""Why records were left out: of each reason its commonest message, with one record as an example.

Messages that differ in numbers, names in quotes or addresses alone are one kind of message. The counts are exact and
the example is the smallest, so that the order of failures does not show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from schemas.failures import Failure

_VARYING = re.compile(r"\w+://\S+|'[^']*'|\"[^\"]*\"|\b[0-9a-f]{12,}\b|\d+(?:\.\d+)?")


class Message(NamedTuple):
    """A kind of message: how many failures have it, and the smallest record of them with its message."""

    times: int
    record: str
    message: str


def kind_of(failure: Failure) -> tuple[tuple[str, str], Message]:
    """Return ((reason, what messages of one kind share), the message of one failure)."""
    shared = _VARYING.sub("#", failure.message)
    return (str(failure.reason), shared), Message(1, failure.record_id, failure.message)


def merge_messages(messages: Iterable[Message]) -> Message:
    """Return messages of one kind as one."""
    found = list(messages)
    return Message(sum(each.times for each in found), *min(each[1:] for each in found))


def commonest(messages: Iterable[Message]) -> Message:
    """Return the most frequent of the messages of one reason; of equals, the one whose record is smallest."""
    return min(messages, key=lambda each: (-each.times, each.record, each.message))
