"""Submissions and the albums they point at."""

from typing import Any

import pytest

from pipelines.sources.reddit import Submission, find_album_id, find_takedown, parse_submission, select_album
from pipelines.sources.takedowns import parse_takedowns
from schemas.failures import Failure, Reason, Stage

RECORD: dict[str, Any] = {
    "id": "1abc",
    "subreddit": "DIY",
    "score": 30,
    "title": "A shelf &amp; a box",
    "url": "http://imgur.com/a/bbKvv",
    "domain": "imgur.com",
    "permalink": "/r/DIY/comments/1abc/",
    "is_self": False,
    "over_18": False,
    "author": "maker",
    "created_utc": 1401597753,
}


def submission(**changes: Any) -> Submission:
    parsed = parse_submission(RECORD | changes, record_id="f:1")
    assert isinstance(parsed, Submission)
    return parsed


def test_a_record_is_read() -> None:
    assert submission() == Submission(
        id="1abc", subreddit="DIY", score=30, title="A shelf & a box", url="http://imgur.com/a/bbKvv",
        domain="imgur.com", permalink="/r/DIY/comments/1abc/", is_self=False, over_18=False, author="maker",
        created_utc=1401597753, was_deleted_later=False,
    )  # fmt: skip


@pytest.mark.parametrize("moment", [1401597753, 1401597753.0, "1401597753"])
def test_moments_of_all_years(moment: object) -> None:
    assert submission(created_utc=moment).created_utc == 1401597753


@pytest.mark.parametrize(
    ("changes", "record_id", "reason"),
    [
        ({"id": None}, "f:1", "missing-field"),
        ({"id": ""}, "f:1", "missing-field"),
        ({"id": 7}, "f:1", "broken-record"),
        ({"score": None}, "1abc", "missing-field"),
        ({"score": "30"}, "1abc", "broken-record"),
        ({"score": True}, "1abc", "broken-record"),
        ({"url": None}, "1abc", "missing-field"),
        ({"title": None}, "1abc", "missing-field"),
        ({"title": ["a"]}, "1abc", "broken-record"),
        ({"created_utc": "yesterday"}, "1abc", "broken-record"),
        ({"_meta": "deleted"}, "1abc", "broken-record"),
    ],
)
def test_records_that_cannot_be_used(changes: dict[str, Any], record_id: str, reason: str) -> None:
    failure = parse_submission(RECORD | changes, record_id="f:1")
    assert isinstance(failure, Failure)
    assert (failure.record_id, failure.reason) == (record_id, reason)


def test_half_a_surrogate_pair_does_not_reach_the_tables() -> None:
    assert submission(title="cut \ud83d").title == "cut \ufffd"


@pytest.mark.parametrize(
    ("url", "album_id"),
    [
        ("http://imgur.com/a/bbKvv", "bbKvv"),
        ("https://imgur.com/a/bbKvv/", "bbKvv"),
        ("https://www.imgur.com/a/bbKvv", "bbKvv"),
        ("https://m.imgur.com/a/bbKvv", "bbKvv"),
        ("https://IMGUR.com:443/a/bbKvv", "bbKvv"),
        ("https://imgur.com/a/bbKvv?gallery#3", "bbKvv"),
        ("https://imgur.com/a/bbKvv#12", "bbKvv"),
        ("http://imgur.com/a/bbKvv/layout/grid", "bbKvv"),
        ("http://imgur.com/a/bbKvv/all", "bbKvv"),
        ("http://imgur.com/a/bbKvv?a=1&amp;b=2", "bbKvv"),
        ("http&#58;//imgur.com/a/bbKvv", "bbKvv"),
        (" http://imgur.com/a/bbKvv ", "bbKvv"),
        ("https://imgur.com/a/my-first-table-AbC1234", "AbC1234"),
        ("http://imgur.com/bbKvv", None),
        ("http://imgur.com/gallery/bbKvv", None),
        ("http://imgur.com/a/", None),
        ("http://imgur.com/r/diy/a/bbKvv", None),
        ("http://imgur.com/a/../etc", None),
        ("http://i.imgur.com/a/bbKvv", None),
        ("http://notimgur.com/a/bbKvv", None),
        ("http://imgur.com.evil.example/a/bbKvv", None),
        ("http://evil.example/http://imgur.com/a/bbKvv", None),
        ("ftp://imgur.com/a/bbKvv", None),
        ("http://[imgur.com/a/bbKvv", None),
        ("", None),
    ],
)
def test_album_ids(url: str, album_id: str | None) -> None:
    assert find_album_id(url) == album_id


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "bbKvv"),
        ({"score": 25}, "bbKvv"),
        ({"score": 24}, "low-score"),
        ({"url": "http://imgur.com/x.jpg"}, "not-an-album"),
        ({"author": "[deleted]"}, "bbKvv"),
        ({"author": "[deleted]", "title": "[deleted]"}, "deleted-record"),
        ({"author": "[deleted]", "title": "[deleted by user]", "score": 1}, "deleted-record"),
        ({"title": "[deleted]"}, "bbKvv"),
        ({"_meta": {"was_deleted_later": True}}, "deleted-record"),
        ({"_meta": {"was_deleted_later": False}}, "bbKvv"),
        ({"_meta": {}}, "bbKvv"),
    ],
)
def test_selection(changes: dict[str, Any], expected: str) -> None:
    selected = select_album(submission(**changes), min_score=25)
    assert (selected.reason if isinstance(selected, Failure) else selected) == expected


@pytest.mark.parametrize(
    ("entry", "by"),
    [
        ("id:1abc", "id"),
        ("id:bbKvv", "id"),
        ("url:https://www.reddit.com/r/DIY/comments/1abc", "url"),
        ("url:https://imgur.com/a/bbKvv", "url"),
        ("url:https://m.imgur.com/a/bbKvv/layout/grid", "url"),
        ("id:1ab", None),
        ("url:https://imgur.com/a/bbKvw", None),
    ],
)
def test_a_takedown_is_known_before_the_album_is_asked_for(entry: str, by: str | None) -> None:
    listed = parse_takedowns([entry.encode()], name="list")
    found = find_takedown(submission(url="http://m.imgur.com/a/bbKvv/layout/grid"), "bbKvv", listed)
    expected = Failure(Stage.SOURCES, "1abc", Reason.TAKEN_DOWN, f"on the takedown list by its {by}")
    assert found == (expected if by else None)
