"""Settings of the `diy` source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pipelines.sources.inputs import Form, Input, needed


class DumpOrApi(StrEnum):
    DUMP = "dump"
    API = "api"


class PageOrApi(StrEnum):
    PAGE = "page"
    API = "api"


class Listing(StrEnum):
    NEW = "new"
    TOP = "top"
    HOT = "hot"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiySource:
    """Reddit submissions of a subreddit and their imgur albums (SPEC 2).

    Attributes:
        kind: a dump file, or the Reddit API through PRAW (credentials come from the environment:
            REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET).
        dump: path or URL of an `RS_*` file, .zst, .xz, .bz2, .gz or plain, or of a folder or an archive of such;
            several are separated by commas.
        subreddit: compared without case.
        min_score: a submission below it is left out.
        listing: which listing of the API.
        limit: submissions asked of the API (Reddit stops at 1000).
        albums: imgur's page, or its API (client id from the environment: IMGUR_CLIENT_ID).
        imgur_url: where album pages are.
        imgur_api_url: where imgur's API is.
        reddit_url: issues tokens.
        oauth_url: serves listings.
    """

    kind: DumpOrApi = DumpOrApi.DUMP
    dump: tuple[str, ...] = ()
    subreddit: str = "DIY"
    min_score: int = 25
    listing: Listing = Listing.TOP
    limit: int = 1000
    albums: PageOrApi = PageOrApi.PAGE
    imgur_url: str = "https://imgur.com"
    imgur_api_url: str = "https://api.imgur.com"
    reddit_url: str = "https://www.reddit.com"
    oauth_url: str = "https://oauth.reddit.com"

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read: an API reads no file."""
        return (needed("dump", "RS_*", form=Form.FILES),) if self.kind is DumpOrApi.DUMP else ()
