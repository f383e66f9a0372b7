"""The data set `diy`: Reddit's posts with their imgur albums; how these are read is in `pipelines.sources.diy`.

Posts are those of dumps, or of a listing of Reddit's API, through PRAW, read-only. A listing changes: what it gave is
kept in the raw store as one JSON object, and used again while it is young. PRAW's requests go through the same address
checks as all others.

    raw/reddit/listings/<subreddit>-<listing>-<limit>-<host>.json
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pipelines.recipe import BuildConfig
from pipelines.settings import DocumentsConfig, HttpConfig
from pipelines.sources.diy.albums import AlbumHost, fetch_albums
from pipelines.sources.diy.submissions import (
    GALLERY_FIELDS,
    REMOVAL_FIELDS,
    Submission,
    choose_capture,
    read_dump,
    read_records,
    reject_submission,
)
from pipelines.sources.records import rejected
from pipelines.sources.source import Context, Input, Outcomes, Source, input_path
from pipelines.sources.takedowns import NAMELESS
from pipelines.web.transport import Transport
from schemas.failures import Failure, Reason
from schemas.lake import Folder
from schemas.messages import BuildError, UsageError

_OBJECTS = ("author", "subreddit")  # of PRAW, where the API has names
_FIELDS = frozenset({"id", "score", "title", "url", "permalink", *_OBJECTS, *REMOVAL_FIELDS, *GALLERY_FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiySource(Source):
    """Reddit submissions of a subreddit and their imgur albums (SPEC 2).

    Attributes:
        kind: dump files, or the Reddit API through PRAW (credentials come from the environment:
            REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET), and dumps beside it where some are named.
        dump: path or URL of an `RS_*` file, .zst, .xz, .bz2, .gz or plain, or of a folder or an archive of such;
            several are separated by commas. A post that one record says is gone is left out, whichever it is in.
        subreddit: name of the subreddit, in any case of letters.
        min_score: a submission below it is left out.
        album_forms: which posts have an album: all with imgur's addresses of albums and galleries, and Reddit's own
            galleries; or those with imgur's `/a/` alone, as Hessel 2019.
        listing: which listing of the API.
        limit: submissions asked of the API (Reddit stops at 1000).
        albums: imgur's page, or its API (client id from the environment: IMGUR_CLIENT_ID).
        imgur_url: where album pages are.
        imgur_api_url: where imgur's API is.
        reddit_url: address that issues tokens.
        oauth_url: address that serves listings.
    """

    kind: Literal["dump", "api"] = "dump"
    dump: tuple[str, ...] = input_path(())
    subreddit: str = "DIY"
    min_score: int = 25
    album_forms: Literal["all", "hessel-2019"] = "all"
    listing: Literal["new", "top", "hot"] = "top"
    limit: int = 1000
    albums: Literal["page", "api"] = "page"
    imgur_url: str = "https://imgur.com"
    imgur_api_url: str = "https://api.imgur.com"
    reddit_url: str = "https://www.reddit.com"
    oauth_url: str = "https://oauth.reddit.com"

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read: an API needs no file."""
        return (Input("dump", "files", ("RS_*",), is_needed=self.kind == "dump"),)

    @property
    def environment(self) -> tuple[str, ...]:
        """Return the keys of the services that are asked."""
        reddit = ("REDDIT_CLIENT_ID", "REDDIT_CLIENT_SECRET") if self.kind == "api" else ()
        return (*reddit, *(("IMGUR_CLIENT_ID",) if self.albums == "api" else ()))

    def shards(self) -> tuple[str, ...]:
        """Return the dumps, and the name of the listing where the API is asked."""
        return self.dump if self.kind == "dump" else (*self.dump, self.listing)

    def read_shard(self, shard: str, context: Context) -> Iterator[Submission | Failure]:
        """Yield the submissions of a dump or of the listing, and failures."""
        if shard in self.dump:
            return read_dump(shard, subreddit=self.subreddit)
        return read_listing(self, os.environ, http=context.http, raw=context.raw)

    def select(self, key: str, submissions: Iterable[Submission], context: Context) -> Iterator[Submission | Failure]:
        """Yield the submission of an id that counts, where it is wanted, and a failure for each other."""
        first, *others = choose_capture(submissions)
        hessel = self.album_forms == "hessel-2019"
        failure = reject_submission(first, min_score=self.min_score, takedowns=context.takedowns, hessel=hessel)
        yield failure or first
        name = NAMELESS if failure is not None and failure.reason is Reason.TAKEN_DOWN else key
        for _ in others:
            yield rejected(name, Reason.DUPLICATE_RECORD, "expected one record of this id, found another")

    def fetch(self, submissions: Iterable[Submission], context: Context) -> Outcomes:
        """Yield the documents of submissions' albums, and failures."""
        client_id = os.environ.get("IMGUR_CLIENT_ID", "") if self.albums == "api" else ""
        host = AlbumHost(self.imgur_api_url if self.albums == "api" else self.imgur_url, client_id)
        return fetch_albums(submissions, client=context.client, host=host, note=context.note)


def read_listing(
    source: DiySource,
    environment: Mapping[str, str],
    *,
    http: HttpConfig,
    raw: Folder,
    clock: Callable[[], float] = time.time,
) -> Iterator[Submission | Failure]:
    """Yield the submissions of a listing, in its order, and a failure for each record that cannot be used.

    Keys are read in the worker that asks: a job's graph, which others store, has none.

    Raises:
        UsageError: Reddit does not know the credentials, or there are none.
        BuildError: the listing cannot be fetched.
    """
    folder = raw.child("reddit", "listings")
    host = urlsplit(source.oauth_url).netloc.replace(":", "-")
    name = f"{source.subreddit.lower()}-{source.listing}-{source.limit}-{host}.json"
    kept: dict[str, Any] = json.loads(folder.read(name)) if folder.exists(name) else {"fetched_s": -math.inf}
    if kept["fetched_s"] < clock() - http.listing_max_age_s:
        kept = {"fetched_s": clock(), "submissions": _ask(source, environment, http)}
        folder.write(name, json.dumps(kept, ensure_ascii=False, indent=1).encode())
    records = (record | {"retrieved_on": kept["fetched_s"]} for record in kept["submissions"])
    yield from read_records((f"{name}#{position}", record) for position, record in enumerate(records))


def _ask(source: DiySource, environment: Mapping[str, str], http: HttpConfig) -> list[dict[str, Any]]:
    client_id, client_secret = (environment.get(f"REDDIT_CLIENT_{name}") for name in ("ID", "SECRET"))
    if not (client_id and client_secret):
        raise UsageError("Reddit's API needs REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET in the environment")
    import praw  # takes a quarter of a second
    import prawcore

    with Transport(http).session() as session:
        reddit = praw.Reddit(
            client_id=client_id,
            client_secret=client_secret,
            user_agent=http.identity,
            reddit_url=source.reddit_url,
            oauth_url=source.oauth_url,
            requestor_kwargs={"session": session},
            check_for_updates=False,
            timeout=math.ceil(http.total_timeout_s),
        )
        reddit.read_only = True
        try:
            listing = getattr(reddit.subreddit(source.subreddit), source.listing)
            return [_record(submission) for submission in listing(limit=source.limit)]
        except prawcore.PrawcoreException as error:
            where = f"r/{source.subreddit}, listing {source.listing}, at {source.oauth_url}"
            raise _explained(error, where) from error


def _explained(error: Exception, where: str) -> UsageError | BuildError:
    import prawcore

    status = error.response.status_code if isinstance(error, prawcore.ResponseException) else None
    if status == 401 or isinstance(error, prawcore.OAuthException | prawcore.exceptions.InvalidToken):
        return UsageError(f"{where}: Reddit refused REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET: {error}")
    if status is not None:
        return BuildError(f"{where}: expected a listing, found status {status}")
    cause = getattr(error, "original_exception", error)
    return BuildError(f"{where}: no answer: {type(cause).__name__}: {cause}")


def _record(submission: Any) -> dict[str, Any]:
    """Return a listed submission's published fields; one that Reddit left out stays out (and is not asked for)."""
    published = {name: value for name, value in vars(submission).items() if name in _FIELDS}
    return {name: str(value) if name in _OBJECTS and value is not None else value for name, value in published.items()}


def diy() -> BuildConfig:
    """Reddit DIY posts with their imgur albums, by the rules of Hessel 2019 (SPEC 2)."""
    return BuildConfig(dataset="diy", source=DiySource(), documents=DocumentsConfig(is_judged_after_dedupe=True))


RECIPES = {"diy": diy}
