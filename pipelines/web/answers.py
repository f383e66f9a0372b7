"""What an answer means: the reason its status stands for, whether asking again may help, and how long it is remembered.

within a build      the same request is made again after a wait, where that may help (`may_help`)
between builds      a failure holds for `REMEMBERED_S`; then the same is asked for again
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from schemas.failures import Reason

TOO_MANY_REQUESTS = 429
RETRIED_STATUSES = frozenset({TOO_MANY_REQUESTS, 500, 502, 503, 504})
LONGEST_WAIT_S = 120.0  # between two attempts; a longer `Retry-After` gives up
FILE_TIMEOUT_S = 172_800.0  # of an attempt to fetch a whole file
_RETRIED_REASONS = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED})
_REASONS = {
    401: Reason.FORBIDDEN,
    403: Reason.FORBIDDEN,
    404: Reason.NOT_FOUND,
    410: Reason.NOT_FOUND,
    451: Reason.FORBIDDEN,
}
_HOUR_S, _DAY_S = 3_600.0, 86_400.0
# What is not named is not remembered: no host has answered, or the reason is found again without a request.
REMEMBERED_S = {
    Reason.TIMED_OUT: _HOUR_S,
    Reason.TRUNCATED: _HOUR_S,
    Reason.HTTP_ERROR: _HOUR_S,
    Reason.ADDRESS_REFUSED: _HOUR_S,  # a name may lead to another address
    Reason.FORBIDDEN: _DAY_S,  # often a bad hour of a bot filter
    Reason.NOT_AN_IMAGE: _DAY_S,  # a page in place of a picture: often an outage
    Reason.INVALID_URL: 30 * _DAY_S,  # of a redirect
    Reason.NOT_FOUND: 30 * _DAY_S,
    Reason.REMOVED_IMAGE: 30 * _DAY_S,
    Reason.TOO_LARGE: 30 * _DAY_S,
    Reason.TOO_MANY_REDIRECTS: 30 * _DAY_S,
}


def reason_of_status(status: int) -> Reason:
    """Return the reason that a status which is no success stands for."""
    return _REASONS.get(status, Reason.HTTP_ERROR)


def may_help(reason: Reason, status: int | None) -> bool:
    """Return whether the same request may succeed when it is made again."""
    return reason in _RETRIED_REASONS or (reason is Reason.HTTP_ERROR and status in RETRIED_STATUSES)


def backoff_s(attempt: int, *, first_s: float) -> float:
    """Return the wait after an attempt (counted from 1): doubling, times a factor drawn from [0.5, 1.5)."""
    return min(LONGEST_WAIT_S, first_s * 2.0 ** min(attempt - 1, 32) * (0.5 + random.random()))


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds a `Retry-After` header asks for (a number or a date, RFC 9110 10.2.3), None without one."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)


def utc_text(moment: float) -> str:
    """Return a POSIX time as ISO 8601 text in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def posix_time(text: str) -> float:
    """Return the POSIX time of what `utc_text` gave."""
    return datetime.fromisoformat(text).timestamp()
