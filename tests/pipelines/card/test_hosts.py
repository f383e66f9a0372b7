"""Failures by host, and hosts that refused most of what was asked of them."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from pipelines.card.hosts import failures_by_host, host_lines
from pipelines.raw import RawStore, request_key
from pipelines.web.refusals import Refusals, hosts_that_refused, refusal_lines
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.raw import RawEntry
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


def store(raw: Folder, outcomes: Iterable[tuple[str, str | None]]) -> None:
    kept = RawStore(raw)
    for url, reason in outcomes:
        key = request_key("image", url)
        kept.note("web", RawEntry(key=key, kind="image", url=url, fetched_at="2026-11-27T00:00:00Z", reason=reason))
    kept.close()


@pytest.mark.parametrize(
    ("refused", "answered", "is_told"), [(12, 0, True), (12, 11, True), (12, 12, False), (9, 0, False)]
)
def test_a_host_that_refused_most_is_told(tmp_path: Path, refused: int, answered: int, is_told: bool) -> None:
    raw = Folder(str(tmp_path))
    store(raw, [(f"http://h.test/old{n}", "not-found") for n in range(20)])
    began = f"{(max(tmp_path.glob('web/*.warc.gz')).name)[:16]}x"
    outcomes = [(f"http://h.test/{n}", ("not-found", "forbidden")[n % 2]) for n in range(refused)]
    store(raw, [*outcomes, *((f"http://h.test/ok{n}", None) for n in range(answered)), ("http://o.test/", "not-found")])
    expected = [Refusals(refused, refused + answered, "h.test")] if is_told else []
    assert hosts_that_refused(raw, since=began) == expected
    assert bool(refusal_lines(expected)) is is_told
