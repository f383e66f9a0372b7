"""Submissions of a listing of Reddit's API, through PRAW, read-only.

A listing changes: what it gave is captured in the raw store as one JSON object under the listing's key, and used again
while it is young. PRAW's requests go through the same address checks as all others.

    raw/reddit/listings/<subreddit>-<listing>-<limit>-<host>.json
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import praw
import prawcore
import requests

from pipelines.config import DiySource
from pipelines.settings import HttpConfig
from pipelines.sources.credentials import Credentials
from pipelines.sources.reddit import Submission, parse_submission
from pipelines.web.answers import posix_time, utc_text
from pipelines.web.errors import FetchFailed
from pipelines.web.transport import Transport
from schemas.errors import BuildError, UsageError
from schemas.failures import Failure
from schemas.lake import Folder

_FIELDS = (
    "id",
    "score",
    "title",
    "url",
    "domain",
    "permalink",
    "is_self",
    "over_18",
    "created_utc",
)


def read_listing(
    source: DiySource,
    credentials: Credentials,
    *,
    http: HttpConfig,
    raw: Folder,
    clock: Callable[[], float] = time.time,
) -> Iterator[Submission | Failure]:
    """Yield the submissions of a listing, in its order, and a failure for each record that cannot be used.

    Raises:
        UsageError: Reddit does not know the credentials, or there are none.
        BuildError: the listing cannot be had.
    """
    folder = raw.child("reddit", "listings")
    name = _name(source)
    records = _captured(folder, name, newest_s=clock() - http.listing_max_age_s)
    if records is None:
        records = _ask(source, credentials, http)
        listing = {"fetched_at": utc_text(clock()), "submissions": records}
        folder.write(name, (json.dumps(listing, ensure_ascii=False, indent=1) + "\n").encode())
    for position, record in enumerate(records):
        yield parse_submission(record, record_id=f"{name}#{position}")


def _name(source: DiySource) -> str:
    host = urlsplit(source.oauth_url).netloc.replace(":", "-")
    return f"{source.subreddit.lower()}-{source.listing}-{source.limit}-{host}.json"


def _captured(folder: Folder, name: str, *, newest_s: float) -> list[dict[str, Any]] | None:
    """Return the captured records of a listing, or None where there are none young enough."""
    if not folder.exists(name):
        return None
    listing = json.loads(folder.read(name))
    records: list[dict[str, Any]] = listing["submissions"]
    return records if posix_time(listing["fetched_at"]) >= newest_s else None


def _ask(source: DiySource, credentials: Credentials, http: HttpConfig) -> list[dict[str, Any]]:
    if not (credentials.reddit_client_id and credentials.reddit_client_secret):
        raise UsageError("Reddit's API needs REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET in the environment")
    place = f"r/{source.subreddit}, listing {source.listing}, at {source.oauth_url}"
    with Transport(http).session() as session:
        try:
            return _list(source, credentials, http, session)
        except (prawcore.OAuthException, prawcore.exceptions.InvalidToken) as error:
            raise UsageError(f"{place}: Reddit refused REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET: {error}") from error
        except prawcore.ResponseException as error:
            status = error.response.status_code
            if status == requests.codes.unauthorized:
                raise UsageError(f"{place}: Reddit refused REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET") from error
            raise BuildError(f"{place}: expected a listing, found status {status}") from error
        except prawcore.RequestException as error:
            original = error.original_exception
            what = str(original) if isinstance(original, FetchFailed) else type(original).__name__
            raise BuildError(f"{place}: no answer: {what}") from error
        except prawcore.PrawcoreException as error:
            raise BuildError(f"{place}: {type(error).__name__}: {error}") from error


def _list(
    source: DiySource, credentials: Credentials, http: HttpConfig, session: requests.Session
) -> list[dict[str, Any]]:
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
    listing = getattr(reddit.subreddit(source.subreddit), str(source.listing))
    return [_record(submission) for submission in listing(limit=source.limit)]


def _record(submission: Any) -> dict[str, Any]:
    """Return a listed submission's published fields; one that Reddit left out stays out (and is not asked for)."""
    published = vars(submission)
    record = {name: published[name] for name in _FIELDS if name in published}
    author = published.get("author")
    return record | {
        "author": "[deleted]" if author is None else str(author),
        "subreddit": str(published.get("subreddit", "")),
    }
