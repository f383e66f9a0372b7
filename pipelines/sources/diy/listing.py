"""Submissions of a listing of Reddit's API, through PRAW, read-only.

A listing changes: what it gave is kept in the raw store as one JSON object, and used again while it is young. PRAW's
requests go through the same address checks as all others.

    raw/reddit/listings/<subreddit>-<listing>-<limit>-<host>.json
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import praw
import prawcore
import requests

from pipelines.settings import HttpConfig
from pipelines.sources.diy.galleries import GALLERY_FIELDS
from pipelines.sources.diy.submissions import REMOVAL_FIELDS, Credentials, Submission, read_records
from pipelines.web.transport import Transport
from schemas.errors import BuildError, UsageError
from schemas.failures import Failure
from schemas.lake import Folder

_OBJECTS = ("author", "subreddit")  # of PRAW, where the API has names
_FIELDS = frozenset({"id", "score", "title", "url", "permalink", *_OBJECTS, *REMOVAL_FIELDS, *GALLERY_FIELDS})


class Listing(NamedTuple):
    """A listing of a subreddit, how many of it are asked for, and where."""

    subreddit: str
    name: str
    limit: int
    reddit_url: str
    oauth_url: str


def read_listing(
    source: Listing,
    credentials: Credentials,
    *,
    http: HttpConfig,
    raw: Folder,
    clock: Callable[[], float] = time.time,
) -> Iterator[Submission | Failure]:
    """Yield the submissions of a listing, in its order, and a failure for each record that cannot be used.

    Raises:
        UsageError: Reddit does not know the credentials, or there are none.
        BuildError: the listing cannot be fetched.
    """
    folder = raw.child("reddit", "listings")
    host = urlsplit(source.oauth_url).netloc.replace(":", "-")
    name = f"{source.subreddit.lower()}-{source.name}-{source.limit}-{host}.json"
    kept: dict[str, Any] = json.loads(folder.read(name)) if folder.exists(name) else {"fetched_s": -math.inf}
    if kept["fetched_s"] < clock() - http.listing_max_age_s:
        kept = {"fetched_s": clock(), "submissions": _ask(source, credentials, http)}
        folder.write(name, json.dumps(kept, ensure_ascii=False, indent=1).encode())
    records = (record | {"retrieved_on": kept["fetched_s"]} for record in kept["submissions"])
    yield from read_records((f"{name}#{position}", record) for position, record in enumerate(records))


def _ask(source: Listing, credentials: Credentials, http: HttpConfig) -> list[dict[str, Any]]:
    if not (credentials.reddit_client_id and credentials.reddit_client_secret):
        raise UsageError("Reddit's API needs REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET in the environment")
    with Transport(http).session() as session:
        reddit = praw.Reddit(
            client_id=credentials.reddit_client_id,
            client_secret=credentials.reddit_client_secret,
            user_agent=http.identity,
            reddit_url=source.reddit_url,
            oauth_url=source.oauth_url,
            requestor_kwargs={"session": session},
            check_for_updates=False,
            timeout=math.ceil(http.total_timeout_s),
        )
        reddit.read_only = True
        try:
            listing = getattr(reddit.subreddit(source.subreddit), source.name)
            return [_record(submission) for submission in listing(limit=source.limit)]
        except prawcore.PrawcoreException as error:
            where = f"r/{source.subreddit}, listing {source.name}, at {source.oauth_url}"
            raise _explained(error, where) from error


def _explained(error: prawcore.PrawcoreException, where: str) -> UsageError | BuildError:
    status = error.response.status_code if isinstance(error, prawcore.ResponseException) else None
    is_refused = isinstance(error, prawcore.OAuthException | prawcore.exceptions.InvalidToken)
    if is_refused or status == requests.codes.unauthorized:
        return UsageError(f"{where}: Reddit refused REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET: {error}")
    if status is not None:
        return BuildError(f"{where}: expected a listing, found status {status}")
    cause = getattr(error, "original_exception", error)
    return BuildError(f"{where}: no answer: {type(cause).__name__}: {cause}")


def _record(submission: Any) -> dict[str, Any]:
    """Return a listed submission's published fields; one that Reddit left out stays out (and is not asked for)."""
    published = {name: value for name, value in vars(submission).items() if name in _FIELDS}
    return {name: str(value) if name in _OBJECTS and value is not None else value for name, value in published.items()}
