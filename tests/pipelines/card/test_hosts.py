"""Failures by host."""

from pipelines.card.show import failures_by_host, host_lines
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.tables import records_table

MESSAGES = [
    (Reason.NOT_FOUND, "http://h.test:8000/a.png: status 404"),
    (Reason.NOT_FOUND, "https://h.test/b.png: status 410"),
    (Reason.REMOVED_IMAGE, "https://i.imgur.com/removed.png stands in for a deleted image"),
    (Reason.CONNECTION_FAILED, "gone.test: its name cannot be resolved"),
    (Reason.TIMED_OUT, "http://slow.test/x: no complete answer in time"),
    (Reason.NOT_FOUND, "img/bad.png: no such file"),  # no host's
    (Reason.TOO_SMALL, "http://h.test/c.png"),  # no matter of fetching
]


def test_failures_are_counted_by_host_and_reason() -> None:
    rows = [Failure(Stage.IMAGES, "d", reason, message) for reason, message in MESSAGES]
    parts = [records_table(some, FAILURE_SCHEMA) for some in (rows[:3], rows[3:])]
    found = failures_by_host(parts)
    assert found == {
        ("h.test", "not-found"): 2,
        ("i.imgur.com", "removed-image"): 1,
        ("gone.test", "connection-failed"): 1,
        ("slow.test", "timed-out"): 1,
    }
    assert [line.split()[0] for line in host_lines(found)] == [
        "host",
        "h.test",
        "gone.test",
        "i.imgur.com",
        "slow.test",
    ]
    assert host_lines({}) == []
