"""The sources stage in Beam: each source as a PTransform that gives drafts and failure rows.

Requests to one host are made by one worker, with a few threads: so the pace a host sees is the configured one, however
many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import apache_beam as beam

from pipelines.config import DiySource, DumpOrApi, HttpConfig, PageOrApi, Source
from pipelines.documents.draft import Draft
from pipelines.http.captures import Kind
from pipelines.http.client import Client, process_client
from pipelines.http.errors import FetchFailed
from pipelines.http.fan_out import map_concurrently
from pipelines.progress import Progress
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
from pipelines.sources.reddit import Submission, select_album
from pipelines.sources.reddit_api import read_listing
from pipelines.sources.reddit_dump import read_submissions
from pipelines.transforms import Fallible, Outcome, Separate
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
    progress: Progress

    def expand(self, root: beam.Pipeline) -> Outcome:
        start = root | "start" >> beam.Create([None])
        outcome: Outcome
        if isinstance(self.source, DiySource):
            outcome = start | "diy" >> ReadDiy(self.source, self.http, self.raw, self.credentials, self.progress)
        else:
            outcome = start | "read" >> Fallible(Stage.SOURCES, partial(_read_files, source=self.source))
        return outcome


def _read_files(_: None, source: Source) -> Iterator[Draft | Failure]:
    yield from read_source(source)


@dataclass(eq=False)
class ReadDiy(beam.PTransform):
    """Submissions, their albums, and a draft of each."""

    source: DiySource
    http: HttpConfig
    raw: Folder
    credentials: Credentials
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
        drafts = (
            albums.results
            | "key by host" >> beam.Map(_key_by_constant, key=self._host())
            | "group by host" >> beam.GroupByKey()
            | "fetch albums"
            >> beam.ParDo(_FetchAlbums(self.source, self.http, self.raw, self.credentials, self.progress))
            | Separate(Stage.SOURCES)
        )
        failures = (read.failures, unique.failures, albums.failures, drafts.failures)
        return Outcome(drafts.results, failures | "failures" >> beam.Flatten())

    def _submissions(self, _: None) -> Iterator[Submission | Failure]:
        if self.source.kind is DumpOrApi.API:
            yield from read_listing(self.source, self.credentials, http=self.http, raw=self.raw)
        for dump in self.source.dump if self.source.kind is DumpOrApi.DUMP else ():
            yield from read_submissions(Path(dump), subreddit=self.source.subreddit)

    def _select(self, submission: Submission) -> Iterator[AlbumRequest | Failure]:
        selected = select_album(submission, min_score=self.source.min_score)
        yield selected if isinstance(selected, Failure) else (selected, submission)

    def _host(self) -> str:
        base = self.source.imgur_url if self.source.albums is PageOrApi.PAGE else self.source.imgur_api_url
        return urlsplit(base).netloc


def _submission_key(submission: Submission) -> tuple[str, Submission]:
    return submission.id, submission


def _key_by_constant(request: AlbumRequest, key: str) -> tuple[str, AlbumRequest]:
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


class _FetchAlbums(beam.DoFn):
    """Fetches the albums of one host, a few at a time, and yields drafts and failures."""

    def __init__(
        self, source: DiySource, http: HttpConfig, raw: Folder, credentials: Credentials, progress: Progress
    ) -> None:
        self._source = source
        self._http = http
        self._raw = raw
        self._credentials = credentials
        self._progress = progress

    def process(self, group: tuple[str, Iterable[AlbumRequest]]) -> Iterator[Draft | Failure]:
        _, requests = group
        client = process_client(self._http, self._raw)
        fetch = partial(fetch_album, client=client, source=self._source, credentials=self._credentials)
        for outcome in map_concurrently(fetch, requests, threads=self._http.connections_per_host):
            self._progress.advance("albums")
            yield from outcome


def fetch_album(
    request: AlbumRequest, *, client: Client, source: DiySource, credentials: Credentials
) -> tuple[Draft | Failure, ...]:
    """Return the draft of a submission's album and failure rows of entries that are no image; or why there is none."""
    album_id, submission = request
    try:
        draft, failures = album_to_draft(submission, _album(album_id, client, source, credentials))
    except FetchFailed as problem:
        return (problem.failure(submission.id, stage=Stage.SOURCES),)
    except AlbumError as problem:
        return (Failure(Stage.SOURCES, submission.id, problem.reason, str(problem), type(problem).__name__),)
    return (draft, *failures)


def _album(album_id: str, client: Client, source: DiySource, credentials: Credentials) -> Album:
    if source.albums is PageOrApi.PAGE:
        page = client.get(album_page_url(source.imgur_url, album_id), source=IMGUR, kind=Kind.PAGE)
        return parse_album_page(client.body(page), base_url=page.final_url)
    headers = {"Authorization": f"Client-ID {credentials.imgur_client_id}"}
    url = album_api_url(source.imgur_api_url, album_id)
    return parse_album_api(client.body(client.get(url, source=IMGUR, kind=Kind.API, headers=headers)))
