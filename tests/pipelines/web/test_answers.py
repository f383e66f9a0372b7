import pytest

from pipelines.web.requests import (
    LONGEST_WAIT_S,
    backoff_s,
    may_help,
    posix_time,
    reason_of_status,
    retry_after_s,
    utc_text,
)
from schemas.failures import Reason


def test_what_may_be_tried_again() -> None:
    again = {status for status in range(400, 600) if may_help(reason_of_status(status), status)}
    assert again == {429, 500, 502, 503, 504}
    reasons = {reason for reason in Reason if may_help(reason, None)}
    assert reasons == {Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED}


def test_backoff_doubles_with_jitter_up_to_a_limit() -> None:
    for attempt, expected in ((1, 1.0), (2, 2.0), (5, 16.0)):
        assert all(expected / 2 <= backoff_s(attempt, first_s=1.0) < expected * 1.5 for _ in range(20))
    assert backoff_s(999, first_s=1.0) == LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}, now=100.0) == seconds


def test_times_survive_their_text() -> None:
    assert utc_text(1_400_000_000.25) == "2014-05-13T16:53:20.250000Z"
    assert posix_time(utc_text(1_400_000_000.25)) == 1_400_000_000.25
