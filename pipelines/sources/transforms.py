"""The sources stage in Beam: each source as a PTransform that gives drafts and failure rows.

Requests to one host are made by one worker, with a few threads: so the pace a host sees is the configured one, however
many workers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import apache_beam as beam

from pipelines.config import DiySource, DumpOrApi, PageOrApi, Source
from pipelines.progress import Progress
from pipelines.settings import HttpConfig
from pipelines.sources.article_settings import WikipediaSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.credentials import Credentials
from pipelines.sources.imgur import (
    Album,
    AlbumError,
    album_api_url,
    album_page_url,
    album_to_draft,
    parse_album_api,
)
from pipelines.sources.imgur_pages import parse_album_page
from pipelines.sources.readers import read_source
from pipelines.sources.reddit import Submission, find_takedown, select_album
from pipelines.sources.reddit_api import read_listing
from pipelines.sources.reddit_dump import read_submissions
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.wikipedia import fetch_article, list_titles
from pipelines.transforms import Fallible, Outcome, Separate
from pipelines.web.client import Client, process_client
from pipelines.web.errors import FetchFailed
from pipelines.web.fan_out import map_concurrently
from pipelines.web.requests import Kind
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder

AlbumRequest = tuple[str, Submission]  # album id, the submission that links it
IMGUR = "imgur"


@dataclass(eq=False)
class ReadSource(beam.PTransform):
    """Reads any source from the root of a pipeline: gives an `Outcome` of drafts."""

    source: Source
    http: HttpConfig
    raw: Folder
    credentials: Credentials
    takedowns: Takedowns
    progress: Progress

    def expand(self, root: beam.Pipeline) -> Outcome:
        start = root | "start" >> beam.Create([None])
        outcome: Outcome
        if isinstance(self.source, DiySource):
            outcome = start | "diy" >> ReadDiy(
                self.source, self.http, self.raw, self.credentials, self.takedowns, self.progress
            )
        elif isinstance(self.source, WikipediaSource):
            outcome = start | "wikipedia" >> ReadWikipedia(self.source, self.http, self.raw, self.progress)
        else:
            outcome = start | "read" >> Fallible(Stage.SOURCES, partial(_read_files, source=self.source))
        return outcome


def _read_files(_: None, source: Source) -> Iterator[CandidateDocument | Failure]:
    yield from read_source(source)


@dataclass(eq=False)
class ReadDiy(beam.PTransform):
    """Submissions, their albums, and a draft of each."""

    source: DiySource
    http: HttpConfig
    raw: Folder
    credentials: Credentials
    takedowns: Takedowns
    progress: Progress

    def expand(self, start: beam.PCollection) -> Outcome:
        read = start | "submissions" >> Fallible(Stage.SOURCES, self._submissions)
        unique = (
            read.results
            | "key by id" >> beam.Map(_submission_key)
            | "group by id" >> beam.GroupByKey()
            | "drop repeats" >> Fallible(Stage.SOURCES, _first_of_each)
        )
        albums = unique.results | "select albums" >> Fallible(Stage.SOURCES, self._select)
        fetch = partial(fetch_album, source=self.source, credentials=self.credentials)
        drafts = albums.results | "albums" >> FetchRecords(
            self._host(), fetch, "albums", self.http, self.raw, self.progress
        )
        failures = (read.failures, unique.failures, albums.failures, drafts.failures)
        return Outcome(drafts.results, failures | "failures" >> beam.Flatten())

    def _submissions(self, _: None) -> Iterator[Submission | Failure]:
        if self.source.kind is DumpOrApi.API:
            yield from read_listing(self.source, self.credentials, http=self.http, raw=self.raw)
        for dump in self.source.dump if self.source.kind is DumpOrApi.DUMP else ():
            yield from read_submissions(dump, subreddit=self.source.subreddit)

    def _select(self, submission: Submission) -> Iterator[AlbumRequest | Failure]:
        selected = select_album(submission, min_score=self.source.min_score)
        if isinstance(selected, Failure):
            yield selected
        else:
            yield find_takedown(submission, selected, self.takedowns) or (selected, submission)

    def _host(self) -> str:
        base = self.source.imgur_url if self.source.albums is PageOrApi.PAGE else self.source.imgur_api_url
        return urlsplit(base).netloc


def _submission_key(submission: Submission) -> tuple[str, Submission]:
    return submission.id, submission


def _key_by_constant(request: Any, key: str) -> tuple[str, Any]:
    return key, request


def _first_of_each(group: tuple[str, Iterable[Submission]]) -> Iterator[Submission | Failure]:
    """Keep the highest-scored record of an id (the latest one captured, as a rule); the others are repeats."""
    record_id, submissions = group
    first, *others = sorted(submissions, key=_rank)
    yield first
    for other in others:
        message = f"expected one record of this id, found another (score {other.score}, {other.title[:40]!r})"
        yield Failure(Stage.SOURCES, record_id, Reason.DUPLICATE_RECORD, message)


def _rank(submission: Submission) -> tuple[int, str]:
    return -submission.score, repr(submission)


@dataclass(eq=False)
class FetchRecords(beam.PTransform):
    """Fetches what each request asks of one host: gives an `Outcome` of drafts.

    Attributes:
        host: whose pace is kept; one worker makes all of its requests, a few at a time.
        fetch: `fetch(request, client=...)` gives a request's drafts and failures.
        title: what is counted, for progress.
    """

    host: str
    fetch: Callable[..., Iterable[CandidateDocument | Failure]]
    title: str
    http: HttpConfig
    raw: Folder
    progress: Progress

    def expand(self, requests: beam.PCollection) -> Outcome:
        outcome: Outcome = (
            requests
            | "key by host" >> beam.Map(_key_by_constant, key=self.host)
            | "group by host" >> beam.GroupByKey()
            | "fetch" >> beam.FlatMap(self._fetch)
            | Separate()
        )
        return outcome

    def _fetch(self, group: tuple[str, Iterable[Any]]) -> Iterator[CandidateDocument | Failure]:
        _, requests = group
        fetch = partial(self.fetch, client=process_client(self.http, self.raw))
        for outcome in map_concurrently(fetch, requests, threads=self.http.connections_per_host):
            self.progress.advance(self.title)
            yield from outcome
        process_client(self.http, self.raw).flush()


def fetch_album(
    request: AlbumRequest, *, client: Client, source: DiySource, credentials: Credentials
) -> tuple[CandidateDocument | Failure, ...]:
    """Return the draft of a submission's album and failure rows of entries that are no image; or why there is none."""
    album_id, submission = request
    try:
        album, retrieved = _album(album_id, client, source, credentials)
        draft, failures = album_to_draft(submission, album)
    except FetchFailed as problem:
        return (problem.failure(submission.id, stage=Stage.SOURCES),)
    except AlbumError as problem:
        return (Failure(Stage.SOURCES, submission.id, problem.reason, str(problem), type(problem).__name__),)
    return (replace(draft, provenance=replace(draft.provenance, retrieved=retrieved)), *failures)


def _album(album_id: str, client: Client, source: DiySource, credentials: Credentials) -> tuple[Album, str]:
    """Return an album, and when it was fetched."""
    if source.albums is PageOrApi.PAGE:
        page = client.get(album_page_url(source.imgur_url, album_id), source=IMGUR, kind=Kind.PAGE)
        return parse_album_page(client.body(page), base_url=page.final_url), page.fetched_at
    headers = {"Authorization": f"Client-ID {credentials.imgur_client_id}"}
    url = album_api_url(source.imgur_api_url, album_id)
    answer = client.get(url, source=IMGUR, kind=Kind.API, headers=headers)
    return parse_album_api(client.body(answer)), answer.fetched_at


@dataclass(eq=False)
class ReadWikipedia(beam.PTransform):
    """Titles, their articles, and one draft of each article however many titles lead to it."""

    source: WikipediaSource
    http: HttpConfig
    raw: Folder
    progress: Progress

    def expand(self, start: beam.PCollection) -> Outcome:
        titles = start | "titles" >> Fallible(Stage.SOURCES, self._titles)
        fetch = partial(fetch_page, source=self.source)
        host = urlsplit(self.source.base_url).netloc
        fetched = titles.results | "articles" >> FetchRecords(
            host, fetch, "articles", self.http, self.raw, self.progress
        )
        unique = (
            fetched.results
            | "key by id" >> beam.Map(_draft_key)
            | "group by id" >> beam.GroupByKey()
            | "drop repeats" >> Fallible(Stage.SOURCES, _one_draft)
        )
        failures = (titles.failures, fetched.failures, unique.failures) | "failures" >> beam.Flatten()
        return Outcome(unique.results, failures)

    def _titles(self, _: None) -> Iterator[str | Failure]:
        client = process_client(self.http, self.raw)
        yield from list_titles(self.source, client, max_age_s=self.http.listing_max_age_s)


def fetch_page(title: str, *, client: Client, source: WikipediaSource) -> tuple[CandidateDocument | Failure, ...]:
    """Return an article's draft, or why there is none."""
    return (fetch_article(title, client=client, source=source),)


def _draft_key(draft: CandidateDocument) -> tuple[str, CandidateDocument]:
    return draft.id, draft


def _one_draft(group: tuple[str, Iterable[CandidateDocument]]) -> Iterator[CandidateDocument | Failure]:
    draft_id, drafts = group
    first, *others = sorted(drafts, key=repr)
    yield first
    for _ in others:
        yield Failure(Stage.SOURCES, draft_id, Reason.DUPLICATE_RECORD, "another title leads to the same article")
