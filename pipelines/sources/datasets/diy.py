"""The data set `diy`: Reddit's posts with their imgur albums; how these are read is in `pipelines.sources.diy`."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pipelines.recipe import BuildConfig
from pipelines.settings import DocumentsConfig
from pipelines.sources.diy.albums import AlbumHost, fetch_albums
from pipelines.sources.diy.submissions import (
    Credentials,
    Submission,
    choose_capture,
    read_dump,
    reject_submission,
)
from pipelines.sources.inputs import Input, input_path
from pipelines.sources.records import rejected
from pipelines.sources.source import Context, Outcomes, Source
from pipelines.sources.takedowns import NAMELESS
from schemas.failures import Failure, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DiySource(Source):
    """Reddit submissions of a subreddit and their imgur albums (SPEC 2).

    Attributes:
        kind: dump files, or the Reddit API through PRAW (credentials come from the environment:
            REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET), and dumps beside it where some are named.
        dump: path or URL of an `RS_*` file, .zst, .xz, .bz2, .gz or plain, or of a folder or an archive of such;
            several are separated by commas. A post that one record says is gone is left out, whichever it is in.
        subreddit: compared without case.
        min_score: a submission below it is left out.
        album_forms: which posts have an album: all with imgur's addresses of albums and galleries, and Reddit's own
            galleries; or those with imgur's `/a/` alone, as Hessel 2019.
        listing: which listing of the API.
        limit: submissions asked of the API (Reddit stops at 1000).
        albums: imgur's page, or its API (client id from the environment: IMGUR_CLIENT_ID).
        imgur_url: where album pages are.
        imgur_api_url: where imgur's API is.
        reddit_url: issues tokens.
        oauth_url: serves listings.
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
    def is_fixed(self) -> bool:
        """Return whether dumps are read; an API's listing changes."""
        return self.kind == "dump"

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
        from pipelines.sources.diy.listing import Listing, read_listing  # PRAW's import takes a quarter of a second

        listing = Listing(self.subreddit, self.listing, self.limit, self.reddit_url, self.oauth_url)
        return read_listing(listing, _credentials(), http=context.http, raw=context.raw)

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
        client_id = _credentials().imgur_client_id if self.albums == "api" else ""
        host = AlbumHost(self.imgur_api_url if self.albums == "api" else self.imgur_url, client_id)
        return fetch_albums(submissions, client=context.client, host=host, note=context.note)


def _credentials() -> Credentials:
    """Return the keys in this worker's environment: a job's graph, which others store, has none."""
    return Credentials.from_environment(os.environ)


def diy() -> BuildConfig:
    """Reddit DIY posts with their imgur albums, by the rules of Hessel 2019 (SPEC 2)."""
    return BuildConfig(dataset="diy", source=DiySource(), documents=DocumentsConfig(is_judged_after_dedupe=True))


RECIPES = {"diy": diy}
