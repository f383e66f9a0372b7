"""The `diy` source in Beam: submissions, one of each id, and the document of each album."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from pipelines.progress import Progress
from pipelines.settings import HttpConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.credentials import Credentials
from pipelines.sources.diy.albums import fetch_albums
from pipelines.sources.diy.listing import read_listing
from pipelines.sources.diy.settings import DiySource, DumpOrApi
from pipelines.sources.diy.submissions import Submission, rank, read_dump, reject_submission
from pipelines.sources.takedowns import Takedowns
from pipelines.transforms import Fallible, OnOneWorker, Outcome, Separate
from pipelines.web.client import process_client
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder


@dataclass(eq=False)
class ReadDiy(beam.PTransform):
    """Reads the source from the root of a pipeline: gives an `Outcome` of candidate documents."""

    source: DiySource
    http: HttpConfig
    raw: Folder
    credentials: Credentials
    takedowns: Takedowns
    progress: Progress

    def expand(self, root: beam.Pipeline) -> Outcome:
        is_dump = self.source.kind is DumpOrApi.DUMP
        inputs = root | "inputs" >> beam.Create(self.source.dump if is_dump else [""]) | beam.Reshuffle()
        read = inputs | "submissions" >> Fallible(Stage.SOURCES, self._read)
        by_id = read.results | "by id" >> beam.Map(_by_id) | "group by id" >> beam.GroupByKey()
        wanted = by_id | "select" >> Fallible(Stage.SOURCES, self._select)
        albums = wanted.results | "albums" >> OnOneWorker(self._fetch) | Separate()
        failures = (read.failures, wanted.failures, albums.failures)
        return Outcome(albums.results, failures | "failures" >> beam.Flatten())

    def _read(self, dump: str) -> Iterator[Submission | Failure]:
        if dump:
            yield from read_dump(dump, subreddit=self.source.subreddit)
        else:
            yield from read_listing(self.source, self.credentials, http=self.http, raw=self.raw)

    def _select(self, group: tuple[str, Iterable[Submission]]) -> Iterator[Submission | Failure]:
        record_id, submissions = group
        first, *others = sorted(submissions, key=rank)
        yield reject_submission(first, min_score=self.source.min_score, takedowns=self.takedowns) or first
        for _ in others:
            message = "expected one record of this id, found another"
            yield Failure(Stage.SOURCES, record_id, Reason.DUPLICATE_RECORD, message)

    def _fetch(self, submissions: Sequence[Submission]) -> Iterator[CandidateDocument | Failure]:
        client = process_client(self.http, self.raw)
        for outcome in fetch_albums(submissions, client=client, source=self.source, credentials=self.credentials):
            self.progress.advance("albums", isinstance(outcome, CandidateDocument))
            yield outcome


def _by_id(submission: Submission) -> tuple[str, Submission]:
    return submission.id, submission
