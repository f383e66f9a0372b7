"""PRAW against a small Reddit on loopback."""

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from loopback import answering

from pipelines.settings import HttpConfig
from pipelines.sources.datasets.diy import DiySource, read_listing
from pipelines.sources.diy.submissions import Submission
from schemas.errors import BuildError, UsageError
from schemas.failures import Failure
from schemas.lake import Folder

KEYS = {"REDDIT_CLIENT_ID": "id", "REDDIT_CLIENT_SECRET": "secret"}


class Reddit:
    """`asked` has (path, query, User-Agent); `status` is what the listing answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]], str]] = []
        self.token_status = self.status = 200
        self.port = 0

    def listing(self, query: dict[str, list[str]]) -> dict[str, Any]:
        first = int(query.get("after", ["t3_0"])[0].removeprefix("t3_"))
        last = min(first + min(100, int(query["limit"][0])), 150)
        children = [{"kind": "t3", "data": self.post(number)} for number in range(first, last)]
        return {"kind": "Listing", "data": {"children": children, "after": f"t3_{last}" if last < 150 else None}}

    @staticmethod
    def post(number: int) -> dict[str, Any]:
        author = "[deleted]" if number == 1 else "maker"
        post = {"id": str(number), "name": f"t3_{number}", "subreddit": "DIY", "score": number, "title": f"No {number}"}
        post |= {"url": "http://imgur.com/a/x", "permalink": "/r/DIY/", "is_self": False, "created_utc": 1.5e9}
        post |= {"removed_by_category": "moderator"} if number == 3 else {}
        return post | {"author": author} | ({"score": None} if number == 2 else {})


@pytest.fixture
def reddit() -> Iterator[Reddit]:
    state = Reddit()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        parts = urlsplit(request.path)
        state.asked.append((parts.path, parse_qs(parts.query), request.headers["User-Agent"]))
        kind = {"Content-Type": "application/json"}
        if parts.path.endswith("/access_token"):
            token = {"access_token": "t", "token_type": "bearer", "expires_in": 3600, "scope": "*"}
            return state.token_status, json.dumps(token).encode(), kind
        listed = state.listing(parse_qs(parts.query)) if state.status == 200 else {}
        return state.status, json.dumps(listed).encode(), kind

    with answering(answer) as state.port:
        yield state


def source_of(reddit: Reddit, **changes: Any) -> DiySource:
    base = f"http://127.0.0.1:{reddit.port}"
    return DiySource(reddit_url=base, oauth_url=base, **changes)


def read(
    reddit: Reddit, tmp_path: Path, *, now: float = 1000.0, keys: Mapping[str, str] = KEYS, **changes: Any
) -> list[Any]:
    address = f"127.0.0.1:{reddit.port}"
    http = HttpConfig(allow_hosts=(address,), listing_max_age_s=60.0, user_agent="tester/1.0", contact="a@b.example")
    raw = Folder(str(tmp_path / "raw"))
    return list(read_listing(source_of(reddit, **changes), keys, http=http, raw=raw, clock=lambda: now))


def test_a_listing_is_read_over_its_pages(reddit: Reddit, tmp_path: Path) -> None:
    found = read(reddit, tmp_path, limit=120, listing="new")
    assert [o.record_id if isinstance(o, Failure) else o.id for o in found] == [str(number) for number in range(120)]
    assert isinstance(found[0], Submission) and found[0].page_url == "https://www.reddit.com/r/DIY/"
    assert found[1].author == "[deleted]"
    assert found[2].reason == "missing-field"
    assert found[3].removal and found[4].captured == 1000.0
    listings = [path for path, _, _ in reddit.asked if path.endswith("/new")]
    assert len(listings) == 2
    assert all("tester/1.0 (+a@b.example)" in agent for _, _, agent in reddit.asked)


def test_a_young_capture_is_used_again(reddit: Reddit, tmp_path: Path) -> None:
    first = read(reddit, tmp_path, limit=5)
    asked = len(reddit.asked)
    assert read(reddit, tmp_path, limit=5, now=1060.0, keys={}) == first
    assert len(reddit.asked) == asked
    read(reddit, tmp_path, limit=5, now=1061.0)
    assert len(reddit.asked) > asked
    read(reddit, tmp_path, limit=6, now=1061.0)
    assert len(list((tmp_path / "raw" / "reddit" / "listings").iterdir())) == 2


def test_without_keys_nothing_is_asked(reddit: Reddit, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="REDDIT_CLIENT_ID"):
        read(reddit, tmp_path, keys={})
    assert reddit.asked == []


@pytest.mark.parametrize(
    ("token_status", "status", "error", "message"),
    [
        (401, 200, UsageError, "refused REDDIT_CLIENT_ID"),
        (200, 403, BuildError, "expected a listing, found status 403"),
        (200, 404, BuildError, "expected a listing, found status 404"),
    ],
)
def test_refusals_are_one_clear_line(
    reddit: Reddit, tmp_path: Path, *, token_status: int, status: int, error: type[Exception], message: str
) -> None:
    reddit.token_status, reddit.status = token_status, status
    with pytest.raises(error, match=message) as caught:
        read(reddit, tmp_path)
    assert "r/DIY" in str(caught.value) and "\n" not in str(caught.value)


def test_praw_obeys_the_address_checks(reddit: Reddit, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not public"):
        list(read_listing(source_of(reddit), KEYS, http=HttpConfig(), raw=Folder(str(tmp_path))))
    assert reddit.asked == []
