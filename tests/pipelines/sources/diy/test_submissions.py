"""Dump files in every compression, damaged and whole; their submissions, and the albums these point at."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import zstandard
from candidates import names

from pipelines.sources.diy.submissions import (
    Album,
    Submission,
    choose_capture,
    find_album,
    read_dump,
    read_records,
    reject_submission,
)
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
MEDIA = {"status": "valid", "e": "Image", "m": "image/jpg", "s": {"u": "https://preview.redd.it/x.jpg?a=1&amp;s=2"}}
GALLERY = {
    "url": "https://www.reddit.com/gallery/1abc",
    "is_gallery": True,
    "gallery_data": {"items": [{"media_id": "x", "caption": "Cut &amp; glue."}]},
    "media_metadata": {"x": MEDIA},
}


def submission(**changes: Any) -> Submission:
    (parsed,) = read_records([("f:1", RECORD | changes)])
    return parsed


def test_a_record_is_read() -> None:
    assert submission() == Submission(
        id="1abc", score=30, title="A shelf & a box", url="http://imgur.com/a/bbKvv",
        permalink="/r/DIY/comments/1abc/", author="maker",
    )  # fmt: skip
    assert submission().page_url == "https://www.reddit.com/r/DIY/comments/1abc/"
    assert submission(permalink="//[x").page_url == "//[x"


@pytest.mark.parametrize(
    "changes",
    [
        {"removed_by_category": "deleted", "author": "[deleted]"},
        *({"removed_by_category": by} for by in ("author", "moderator", "reddit", "automod_filtered", "anti_evil_ops")),
        *(
            {"removed_by_category": by}
            for by in ("copyright_takedown", "content_takedown", "community_ops", "a new one")
        ),
        {"removed_by": "mod1"},
        {"banned_by": "mod1"},
        {"banned_by": True},
        {"removal_reason": "legal"},
        {"is_robot_indexable": False},
        {"selftext": "[removed]"},
        {"selftext": "[deleted]", "author": "[deleted]"},
        {"title": "[deleted by user]"},
        {"title": "[ Removed by moderator ]"},
        {"title": "[removed by Reddit in response to a copyright notice]"},
        {"selftext": "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]"},
        {"_meta": {"was_initially_deleted": True, "retrieved_2nd_on": 1700000000}},
        {"_meta": {"was_deleted_later": True}},
        {"_meta": {"removal_type": "removed by moderator"}},
        {"crosspost_parent_list": [{"removed_by_category": "author"}]},
        {"removed_by_category": "author", "score": None, "url": None, "title": 7, "subreddit": None, "_meta": 1},
    ],
)
def test_a_record_says_that_its_post_is_gone(changes: dict[str, Any]) -> None:
    assert submission(**changes).removal


@pytest.mark.parametrize(
    "changes",
    [
        {"author": "[deleted]"},  # the account went, the post stands
        {"removed_by_category": None, "removed_by": None, "banned_by": None, "removal_reason": None, "selftext": ""},
        {"removed_by_category": "", "banned_by": False, "is_robot_indexable": True, "is_crosspostable": False},
        {"title": "[Removed old deck]"},
        {"title": "I [removed] a wall"},
        {"title": "[Removed by me] a wall [OC]"},
        {"_meta": {"was_deleted_later": False, "removal_type": None, "retrieved_2nd_on": 1500000000}},
        {"crosspost_parent_list": []},
    ],
)
def test_a_post_that_stands(changes: dict[str, Any]) -> None:
    assert submission(**changes).removal == ""


GONE = {"removed_by_category": "moderator", "score": 0, "retrieved_on": 1}


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        (({"score": 3}, {"score": 30, "title": "b"}), {"score": 30}),
        (({"score": 300, "retrieved_on": 5}, {"score": 30, "retrieved_on": 6}), {"score": 30}),
        (({"score": 300, "retrieved_utc": "5"}, {"score": 30, "retrieved_on": 6.5}), {"score": 30}),
        (({"score": 300, "retrieved_on": 9}, {"score": 30, "_meta": {"retrieved_2nd_on": 10}}), {"score": 30}),
        (({"score": 300}, {"score": 30, "retrieved_on": 6}), {"score": 30}),
        ((GONE, {"score": 300, "retrieved_on": 6}), {"removal": "removed_by_category: moderator"}),
    ],
)
def test_of_several_records_of_a_post_one_counts_in_any_order(
    records: tuple[dict[str, Any], ...], counts: dict[str, Any]
) -> None:
    for order in permutations(records):
        first, _ = choose_capture([submission(**changes) for changes in order])
        assert {name: getattr(first, name) for name in counts} == counts


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
        ("http://imgur.com/A/bbKvv,", "bbKvv"),
        ("http://imgur.com/a/bbKvv).", "bbKvv"),
        ("http://imgur.com/a/bbKvv&amp;utm-source=x", "bbKvv"),
        ("http://i.imgur.com/a/bbKvv", "bbKvv"),
        ("https://imgur.io/a/bbKvv", "bbKvv"),
        ("//imgur.com/a/bbKvv", "bbKvv"),
        ("imgur.com/a/bbKvv", "bbKvv"),
        ("http://imgur.com/gallery/bbKvv", "bbKvv?"),
        ("http://imgur.com/gallery/caf%C3%A9-shelf-bbKvv/new", "bbKvv?"),
        ("http://imgur.com/t/diy/bbKvv", "bbKvv?"),
        ("http://imgur.com/topic/Aww/bbKvv?a", "bbKvv?"),
        ("http://imgur.com/r/DIY/bbKvv", "bbKvv?"),
        ("http://imgur.com/bbKvv", None),
        ("http://imgur.com/bbKvv,AbC1234", None),
        ("http://imgur.com/a/bbKvv,AbC1234", None),
        ("http://imgur.com/gallery/bbKvv.jpg", None),
        ("http://imgur.com/gallery/new", None),
        ("http://imgur.com/r/DIY", None),
        ("http://imgur.com/r/DIY/top/month", None),
        ("http://imgur.com/a/", None),
        ("http://imgur.com/r/diy/a/bbKvv", None),
        ("http://imgur.com/a/../etc", None),
        ("http://stack.imgur.com/a/bbKvv", None),
        ("http://notimgur.com/a/bbKvv", None),
        ("http://imgur.com.evil.example/a/bbKvv", None),
        ("http://imgur.com@evil.example/a/bbKvv", None),
        ("http://evil.example/http://imgur.com/a/bbKvv", None),
        ("ftp://imgur.com/a/bbKvv", None),
        ("http://[imgur.com/a/bbKvv", None),
        ("", None),
    ],
)
def test_albums(url: str, album_id: str | None) -> None:
    """Of an address that may lead to a single picture the id has a question mark here."""
    assert find_album(url) == (Album(album_id.rstrip("?"), not album_id.endswith("?")) if album_id else None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"score": 25}, None),
        ({"score": 24}, "low-score"),
        ({"url": "http://imgur.com/x.jpg"}, "not-an-album"),
        ({"author": "[deleted]"}, None),
        ({"author": None, "title": "[removed]", "score": 1}, "deleted-record"),
        ({"url": "http://imgur.com/gallery/bbKvv"}, None),
        ({"url": "https://i.redd.it/x.jpg"}, "not-an-album"),
        (GALLERY, None),
        (GALLERY | {"gallery_data": None, "media_metadata": None}, "deleted-record"),
    ],
)
def test_selection(changes: dict[str, Any], expected: str | None) -> None:
    rejected = reject_submission(submission(**changes), min_score=25, takedowns=NO_TAKEDOWNS)
    assert (rejected.reason if rejected else None) == expected


@pytest.mark.parametrize("changes", [{"url": "http://imgur.com/gallery/bbKvv"}, GALLERY])
def test_hessel_s_albums_alone(changes: dict[str, Any]) -> None:
    for post, reason in ((changes, "not-an-album"), ({}, None)):
        found = reject_submission(submission(**post), min_score=25, takedowns=NO_TAKEDOWNS, hessel=True)
        assert (found.reason if found else None) == reason


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


def entries(items: list[Any], media: Any = None, **more: Any) -> list[tuple[str | None, str | None, bool]]:
    found = submission(**GALLERY | {"gallery_data": {"items": items}, "media_metadata": media or {}} | more).gallery
    return [(each.image_uri, each.caption, each.is_animated) for each in found]


def test_a_gallery_is_read_in_its_order_with_its_captions() -> None:
    items = [{"media_id": "b", "caption": " Cut\nit. ", "outbound_url": "http://x.example"}, {"media_id": "a", "id": 7}]
    media = {"a": MEDIA | {"m": "image/png"}, "b": MEDIA}
    assert entries(items, media) == [
        ("https://i.redd.it/b.jpg", "Cut it.", False),
        ("https://i.redd.it/a.png", None, False),
    ]


@pytest.mark.parametrize(
    ("about", "uri", "is_animated"),
    [
        (MEDIA, "https://i.redd.it/x.jpg", False),
        (MEDIA | {"m": "image/jpeg"}, "https://i.redd.it/x.jpg", False),
        (MEDIA | {"m": None}, "https://i.redd.it/x.jpg", False),
        (MEDIA | {"m": "image/avif"}, "https://preview.redd.it/x.jpg?a=1&s=2", False),
        (MEDIA | {"e": "AnimatedImage", "m": "image/gif", "s": {"gif": "https://i.redd.it/x.gif"}},
         "https://i.redd.it/x.gif", True),
        (MEDIA | {"m": None, "s": None}, "unusable:missing-field:", False),
        ({"status": "failed"}, "unusable:not-found:", False),
        ({"status": "unprocessed"}, "unusable:not-found:", False),
        (None, "unusable:not-found:", False),
        ("x", "unusable:not-found:", False),
    ],
)  # fmt: skip
def test_a_picture_of_a_gallery(about: Any, uri: str, is_animated: bool) -> None:
    ((found, caption, moves),) = entries([{"media_id": "x", "caption": "It."}], {"x": about})
    assert found is not None and found.startswith(uri) and (caption, moves) == ("It.", is_animated)
    assert uri.startswith("unusable:") or found == uri


def test_what_is_wrong_with_a_caption_costs_the_caption_alone() -> None:
    assert entries([{"media_id": "x", "caption": 7}], {"x": MEDIA}) == [("https://i.redd.it/x.jpg", None, False)]


def test_a_post_that_repeats_another_has_its_album() -> None:
    page = {"url": "/r/woodworking/comments/2abc/"}
    repeated = submission(**page, crosspost_parent_list=[GALLERY])
    assert repeated.gallery == submission(**GALLERY).gallery and repeated.gallery
    assert submission(**page, crosspost_parent_list=[RECORD]).url == RECORD["url"]


def line(record_id: str, subreddit: str = "DIY", **fields: object) -> bytes:
    record = {"id": record_id, "subreddit": subreddit, "score": 1, "title": "t", "url": "http://imgur.com/a/x"}
    return json.dumps(record | fields).encode() + b"\n"


def outcomes(path: Path, subreddit: str = "DIY") -> list[str]:
    return names(read_dump(str(path), subreddit=subreddit))


def two_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def long_window(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "RS.zst": two_frames,
    "RS_long.zst": long_window,
    "RS.xz": lzma.compress,
    "RS.bz2": bz2.compress,
    "RS.gz": gzip.compress,
    "RS.jsonl": bytes,
}


@pytest.mark.parametrize("name", PACKERS)
def test_every_compression_is_read_and_other_subreddits_pass(tmp_path: Path, name: str) -> None:
    data = line("a") + line("b", "woodworking") + b"\n" + line("c", "diy") + line("d", "pics", title='"DIY"')
    (tmp_path / name).write_bytes(PACKERS[name](data + line("e").rstrip()))
    assert outcomes(tmp_path / name) == ["a", "c", "e"]
    assert outcomes(tmp_path / name, "diy") == ["a", "c", "e"]


def test_broken_lines_are_failures_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "RS"
    path.write_bytes(
        line("a") + b'{"id": "b", "subreddit": "DIY", "sco\n' + b"[1, 2]\n" + b'{"subreddit" "DIY"}\n'
        + b'["DIY", {}]\n'
        + b'{"subreddit": "DIY", "score": 1}\n' + line("c") + b'{"id": "d", "subreddit": "DIY"'
    )  # fmt: skip
    assert outcomes(path) == [
        "a", "RS:2 broken-record", "RS:3 broken-record", "RS:4 broken-record", "RS:5 broken-record",
        "RS:6 missing-field", "c", "RS:8 broken-record",
    ]  # fmt: skip


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "RS.gz"
    path.write_bytes(gzip.compress(line("a", title="XX").replace(b"XX", b"caf\xe9 \xff")))
    (found,) = read_dump(str(path), subreddit="DIY")
    assert found.title == "caf\ufffd \ufffd"


@pytest.mark.parametrize("name", ["RS.zst", "RS.xz", "RS.bz2", "RS.gz"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(line("a"))
    assert outcomes(tmp_path / name) == [f"{name}:1 broken-record"]
