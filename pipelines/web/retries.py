"""What an answer's status means, whether asking again may help, and how long to wait first."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from schemas.failures import Reason

TOO_MANY_REQUESTS = 429
RETRIED_STATUSES = frozenset({TOO_MANY_REQUESTS, 500, 502, 503, 504})
_RETRIED_REASONS = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED})
_REASONS = {
    401: Reason.FORBIDDEN,
    403: Reason.FORBIDDEN,
    404: Reason.NOT_FOUND,
    410: Reason.NOT_FOUND,
    451: Reason.FORBIDDEN,
}


def reason_of_status(status: int) -> Reason:
    """Return the reason that a status which is no success stands for."""
    return _REASONS.get(status, Reason.HTTP_ERROR)


def may_help(reason: Reason, status: int | None) -> bool:
    """Return whether the same request may succeed when it is made again."""
    return reason in _RETRIED_REASONS or (reason is Reason.HTTP_ERROR and status in RETRIED_STATUSES)


def backoff_s(attempt: int, *, first_s: float, longest_s: float, chance: Callable[[], float] = random.random) -> float:
    """Return the wait after an attempt (counted from 1): doubling, times a factor drawn from [0.5, 1.5)."""
    return float(min(longest_s, first_s * 2.0 ** min(attempt - 1, 32) * (0.5 + chance())))


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds a `Retry-After` header asks for (a number or a date, RFC 9110 10.2.3), None without one."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
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
