"""www.reddit.com and oauth.reddit.com: application-only sign-in, and listings.

Listings give at most 100 submissions a page and never more than the newest 1,000, as the service does.
Without `raw_json=1` text fields are HTML-escaped. Standard library only.
"""

import base64
import binascii
import hashlib
import html
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from replies import Reply, Request, json_reply, robots_reply

EXPIRES_IN_S = 86_400
PERIOD_S = 600
REQUESTS_A_PERIOD = 1000
MAX_PAGE = 100
DEFAULT_PAGE = 25
MAX_LISTED = 1000
HOT_DECAY_S = 45_000
LISTING_PATH = re.compile(r"/r/(\w+)(?:/(new|top|hot))?/?(?:\.json)?")

Submission = dict[str, str | int | float | bool | None]


def newness(post: Submission) -> float:
    """Order of `new`."""
    return float(post["created_utc"] or 0)


def score(post: Submission) -> float:
    """Order of `top`."""
    return float(post["score"] or 0)


def heat(post: Submission) -> float:
    """Order of `hot`: a falling worth of age against score."""
    return score(post) + newness(post) / HOT_DECAY_S


ORDERS: dict[str, Callable[[Submission], float]] = {"new": newness, "top": score, "hot": heat}


class RedditHost:
    """Serves `posts.json`."""

    def __init__(self, recording: Path) -> None:
        self._posts: dict[str, Submission] = json.loads((recording / "posts.json").read_text(encoding="utf-8"))
        self._tokens: set[str] = set()
        self._count = itertools.count(1)

    def answer(self, request: Request) -> Reply:
        """The reply of the end point that the path names."""
        if request.path == "/robots.txt":
            return robots_reply("/login", "/search", "/message/")
        if request.path == "/api/v1/access_token":
            return self._sign_in(request)
        if not self._signed_in(request):
            refusal = {"WWW-Authenticate": 'Bearer realm="reddit", error="invalid_token"'}
            return json_reply(401, {"message": "Unauthorized", "error": 401}, headers=refusal)
        found = LISTING_PATH.fullmatch(request.path)
        return self._limited(self._page(found[1], found[2] or "hot", request.query) if found else None)

    def _sign_in(self, request: Request) -> Reply:
        client = basic_user(request.headers.get("authorization", ""))
        if request.method != "POST" or not client:
            refusal = {"WWW-Authenticate": 'Basic realm="reddit"'}
            return json_reply(401, {"message": "Unauthorized", "error": 401}, headers=refusal)
        if request.form.get("grant_type") != "client_credentials":
            return json_reply(400, {"error": "unsupported_grant_type"})
        token = "-" + hashlib.sha256(f"{client} {next(self._count)}".encode()).hexdigest()[:30]
        self._tokens.add(token)
        grant = {"access_token": token, "token_type": "bearer", "expires_in": EXPIRES_IN_S, "scope": "*"}
        return json_reply(200, grant)

    def _signed_in(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and token in self._tokens

    def _page(self, subreddit: str, order: str, query: Mapping[str, str]) -> object | None:
        posts = [post for post in self._posts.values() if str(post["subreddit"]).lower() == subreddit.lower()]
        if not posts:
            return None
        posts = sorted(posts, key=ORDERS[order], reverse=True)[:MAX_LISTED]
        names = [f"t3_{post['id']}" for post in posts]
        limit = int(query.get("limit") or DEFAULT_PAGE)
        size = min(max(limit, 1), MAX_PAGE) if limit else MAX_PAGE
        after = query.get("after")
        start = names.index(after) + 1 if after in names else 0
        shown = posts[start : start + size]
        last = names[start + len(shown) - 1] if start + len(shown) < len(posts) else None
        return listing(shown, raw=query.get("raw_json") == "1", after=last)

    def _limited(self, things: object | None) -> Reply:
        used = next(self._count) % REQUESTS_A_PERIOD
        limits = {
            "X-Ratelimit-Used": str(used),
            "X-Ratelimit-Remaining": f"{REQUESTS_A_PERIOD - used:.1f}",
            "X-Ratelimit-Reset": str(PERIOD_S // 2),  # half of it is over, few requests are used: PRAW need not wait
        }
        if things is None:
            return json_reply(404, {"message": "Not Found", "error": 404}, headers=limits)
        return json_reply(200, things, headers=limits)


def basic_user(header: str) -> str:
    """The user of a Basic authorization header; empty when there is none."""
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def listing(posts: Sequence[Submission], *, raw: bool, after: str | None = None) -> dict[str, object]:
    """A Listing of submissions, whose texts are HTML-escaped unless they are asked for raw."""
    children = [{"kind": "t3", "data": post if raw else escaped(post)} for post in posts]
    return {
        "kind": "Listing",
        "data": {"after": after, "before": None, "dist": len(children), "modhash": "", "children": children},
    }


def escaped(post: Submission) -> Submission:
    """The submission with the text fields HTML-escaped."""
    return {name: html.escape(value, quote=False) if isinstance(value, str) else value for name, value in post.items()}
