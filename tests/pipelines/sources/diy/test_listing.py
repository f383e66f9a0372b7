"""PRAW against a small Reddit on loopback."""

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from loopback import answering

from pipelines.settings import HttpConfig
from pipelines.sources.datasets.diy import DiySource, read_listing
from pipelines.sources.diy.submissions import Submission
from schemas.failures import Failure
from schemas.lake import Folder
from schemas.messages import BuildError, UsageError

JSON = {"Content-Type": "application/json"}
KEYS = {"REDDIT_CLIENT_ID": "id", "REDDIT_CLIENT_SECRET": "secret"}


def post(number: int) -> dict[str, Any]:
    given = {"id": str(number), "name": f"t3_{number}", "subreddit": "DIY", "title": f"No {number}", "is_self": False}
    given |= {"url": "http://imgur.com/a/x", "permalink": "/r/DIY/", "created_utc": 1.5e9}
    given |= {"author": "[deleted]" if number == 1 else "maker", "score": None if number == 2 else number}
    return given | ({"removed_by_category": "moderator"} if number == 3 else {})


@pytest.fixture
def reddit() -> Iterator[SimpleNamespace]:
    """150 posts; `asked` has (path, User-Agent), and `status` is what the listing answers."""
    state = SimpleNamespace(asked=[], token_status=200, status=200)

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        parts = urlsplit(request.path)
        state.asked.append((parts.path, request.headers["User-Agent"]))
        if parts.path.endswith("/access_token"):
            token = {"access_token": "t", "token_type": "bearer", "expires_in": 3600, "scope": "*"}
            return state.token_status, json.dumps(token).encode(), JSON
        query = dict(parse_qsl(parts.query))
        first = int(query.get("after", "t3_0").removeprefix("t3_"))
        last = min(first + min(100, int(query["limit"])), 150)
        children = [{"kind": "t3", "data": post(number)} for number in range(first, last)]
        data = {"children": children, "after": f"t3_{last}" if last < 150 else None}
        return state.status, json.dumps({"kind": "Listing", "data": data}).encode(), JSON

    with answering(answer) as state.port:
        yield state


def source_of(reddit: SimpleNamespace, **changes: Any) -> DiySource:
    base = f"http://127.0.0.1:{reddit.port}"
    return DiySource(reddit_url=base, oauth_url=base, **changes)


def read(
    reddit: SimpleNamespace, tmp_path: Path, *, now: float = 1000.0, keys: Mapping[str, str] = KEYS, **changes: Any
) -> list[Any]:
    address = f"127.0.0.1:{reddit.port}"
    http = HttpConfig(allow_hosts=(address,), listing_max_age_s=60.0, user_agent="tester/1.0", contact="a@b.example")
    raw = Folder(str(tmp_path / "raw"))
    return list(read_listing(source_of(reddit, **changes), keys, http=http, raw=raw, clock=lambda: now))


def test_a_listing_is_read_over_its_pages(reddit: SimpleNamespace, tmp_path: Path) -> None:
    found = read(reddit, tmp_path, limit=120, listing="new")
    assert [o.record_id if isinstance(o, Failure) else o.id for o in found] == [str(number) for number in range(120)]
    assert isinstance(found[0], Submission) and found[0].page_url == "https://www.reddit.com/r/DIY/"
    assert (found[1].author, found[2].reason, found[4].captured) == ("[deleted]", "missing-field", 1000.0)
    assert found[3].removal and [path for path, _ in reddit.asked].count("/r/DIY/new") == 2
    assert all("tester/1.0 (+a@b.example)" in agent for _, agent in reddit.asked)


def test_a_young_capture_is_used_again(reddit: SimpleNamespace, tmp_path: Path) -> None:
    first = read(reddit, tmp_path, limit=5)
    asked = len(reddit.asked)
    assert read(reddit, tmp_path, limit=5, now=1060.0, keys={}) == first
    assert len(reddit.asked) == asked
    read(reddit, tmp_path, limit=5, now=1061.0)
    assert len(reddit.asked) > asked
    read(reddit, tmp_path, limit=6, now=1061.0)
    assert len(list((tmp_path / "raw" / "reddit" / "listings").iterdir())) == 2


def test_without_keys_nothing_is_asked(reddit: SimpleNamespace, tmp_path: Path) -> None:
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
    reddit: SimpleNamespace, tmp_path: Path, *, token_status: int, status: int, error: type[Exception], message: str
) -> None:
    reddit.token_status, reddit.status = token_status, status
    with pytest.raises(error, match=message) as caught:
        read(reddit, tmp_path)
    assert "r/DIY" in str(caught.value) and "\n" not in str(caught.value)


def test_praw_obeys_the_address_checks(reddit: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not public"):
        list(read_listing(source_of(reddit), KEYS, http=HttpConfig(), raw=Folder(str(tmp_path))))
    assert reddit.asked == []
