"""Submissions and the albums they point at."""

from typing import Any

import pytest

from pipelines.sources.diy.submissions import Submission, find_album_id, rank, read_records, reject_submission
from pipelines.sources.takedowns import NAMELESS, NO_TAKEDOWNS, parse_takedowns
from schemas.failures import Failure, Reason, Stage

RECORD: dict[str, Any] = {
    "id": "1abc",
    "subreddit": "DIY",
    "score": 30,
    "title": "A shelf &amp; a box",
    "url": "http://imgur.com/a/bbKvv",
    "permalink": "/r/DIY/comments/1abc/",
    "author": "maker",
}


def submission(**changes: Any) -> Submission:
    (parsed,) = read_records([("f:1", RECORD | changes)])
    assert isinstance(parsed, Submission)
    return parsed


def test_a_record_is_read() -> None:
    assert submission() == Submission(
        id="1abc", score=30, title="A shelf & a box", url="http://imgur.com/a/bbKvv",
        permalink="/r/DIY/comments/1abc/", author="maker", was_deleted_later=False,
    )  # fmt: skip
    assert submission().page_url == "https://www.reddit.com/r/DIY/comments/1abc/"
    assert submission(permalink="//[x").page_url == "//[x"


def test_the_highest_score_comes_first() -> None:
    early, late = submission(score=3), submission(score=30, title="edited")
    assert sorted([early, late], key=rank) == [late, early]


@pytest.mark.parametrize(
    ("changes", "record_id", "reason"),
    [
        ({"id": None}, "f:1", "missing-field"),
        ({"id": ""}, "f:1", "missing-field"),
        ({"id": [7]}, "f:1", "broken-record"),
        ({"score": None}, "1abc", "missing-field"),
        ({"score": "30"}, "1abc", "broken-record"),
        ({"score": True}, "1abc", "broken-record"),
        ({"url": None}, "1abc", "missing-field"),
        ({"title": None}, "1abc", "missing-field"),
        ({"title": ["a"]}, "1abc", "broken-record"),
        ({"subreddit": None}, "1abc", "missing-field"),
        ({"_meta": "deleted"}, "1abc", "broken-record"),
    ],
)
def test_records_that_cannot_be_used(changes: dict[str, Any], record_id: str, reason: str) -> None:
    (failure,) = read_records([("f:1", RECORD | changes)])
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
        ({}, None),
        ({"score": 25}, None),
        ({"score": 24}, "low-score"),
        ({"url": "http://imgur.com/x.jpg"}, "not-an-album"),
        ({"author": "[deleted]"}, None),
        ({"author": "[deleted]", "title": "[deleted]"}, "deleted-record"),
        ({"author": "[deleted]", "title": "[deleted by user]", "score": 1}, "deleted-record"),
        ({"title": "[deleted]"}, None),
        ({"_meta": {"was_deleted_later": True}}, "deleted-record"),
        ({"_meta": {"was_deleted_later": False}}, None),
        ({"_meta": {}}, None),
        ({"author": None, "title": "[removed]"}, "deleted-record"),
    ],
)
def test_selection(changes: dict[str, Any], expected: str | None) -> None:
    rejected = reject_submission(submission(**changes), min_score=25, takedowns=NO_TAKEDOWNS)
    assert (rejected.reason if rejected else None) == expected


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
    linked = submission(url="http://m.imgur.com/a/bbKvv/layout/grid")
    found = reject_submission(linked, min_score=25, takedowns=listed)
    expected = Failure(Stage.SOURCES, NAMELESS, Reason.TAKEN_DOWN, f"on the takedown list by its {by}")
    assert found == (expected if by else None)
