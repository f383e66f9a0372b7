"""Captures of what is forgotten, found by what the ledger says they were asked for, or by what an answer names."""

import json
from pathlib import Path

import pytest

from pipelines.forgetting.captures import Marks, Removal, remove_captures
from pipelines.raw import RawStore, request_key
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Folder
from schemas.raw import RawEntry

QUERY = "https://w.example/w/api.php?action=query&titles=Auk&format=json"
LISTED = {"query": {"categorymembers": [{"pageid": 7, "ns": 0, "title": "Auk"}, {"pageid": 12, "title": "Dodo"}]}}


def stored(raw: Folder, kind: str, url: str, body: bytes) -> None:
    store = RawStore(raw)
    entry = RawEntry(
        key=request_key(kind, url),
        kind=kind,
        url=url,
        fetched_at="2026-01-01T00:00:00.000000Z",
        final_url=url,
        status=200,
        media_type="text/html",
    )
    store.add("web", entry, {"content-type": "text/html"}, body)
    store.close()


@pytest.mark.parametrize(
    ("kind", "url", "body", "goes"),
    [
        ("page", "https://a.example/page", b"<p>Anything.</p>", True),
        ("page", "https://a.example/page/2", b"<p>Anything.</p>", False),
        ("api", QUERY, b"{}", True),
        ("api", f"{QUERY}&gimcontinue=b&continue=a%7C%7C", b"{}", True),
        ("api", f"{QUERY}2", b"{}", False),
        ("api", "https://w.example/members", json.dumps(LISTED).encode(), True),
        ("api", "https://w.example/others", json.dumps(LISTED).replace("Auk", "Puffin").encode(), False),
        ("api", "https://w.example/broken", b"{ no json, Auk", False),
        ("page", "https://a.example/other", b"A page of another author about Auk.", False),
        ("robots", "https://a.example/page", b"", False),
    ],
)
def test_what_goes_of_the_raw_store(kind: str, url: str, body: bytes, goes: bool, tmp_path: Path) -> None:
    raw = Folder(str(tmp_path / "raw"))
    stored(raw, kind, url, body)
    addresses = frozenset(["https://a.example/page", QUERY])
    marks = Marks(parse_takedowns([b"id:Auk"], name="list"), addresses=addresses, records=frozenset(["Auk"]))
    assert list(remove_captures(raw, marks, dry_run=True)) == ([Removal("web", 1, 0)] if goes else [])


def test_records_go_from_listings_of_reddit(tmp_path: Path) -> None:
    raw = Folder(str(tmp_path / "raw"))
    submissions = [
        {"id": "1abc", "title": "my private title", "author": "someone", "url": "https://imgur.com/a/zzz"},
        {"id": "2abc", "title": "mine", "author": "someone", "url": "https://imgur.com/a/named"},
        {"id": "3abc", "title": "mine, too", "author": "x", "url": "u", "permalink": "/r/DIY/comments/3abc/t/"},
        {"id": "4abc", "title": "of another", "author": "else", "url": "https://imgur.com/a/other"},
    ]
    folder = raw.child("reddit", "listings")
    folder.write("diy-top-1000-host.json", json.dumps({"fetched_s": 1, "submissions": submissions}).encode())
    named = [b"id:1abc", b"https://imgur.com/a/named", b"https://www.reddit.com/r/DIY/comments/3abc/t"]
    marks = Marks(parse_takedowns(named, name="list"), records=frozenset(["1abc"]))
    expected = [Removal("reddit/listings/diy-top-1000-host.json", 3, 0)]
    before = folder.read("diy-top-1000-host.json")
    assert list(remove_captures(raw, marks, dry_run=True)) == expected
    assert folder.read("diy-top-1000-host.json") == before
    assert list(remove_captures(raw, marks, dry_run=False)) == expected
    assert json.loads(folder.read("diy-top-1000-host.json")) == {"fetched_s": 1, "submissions": submissions[3:]}
    assert list(remove_captures(raw, marks, dry_run=False)) == []
