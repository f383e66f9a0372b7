"""The sources stage in Beam: any source gives candidate documents and failure rows.

files              read where one worker has them
a corpus           a shard each, by all workers
diy                submissions -> one of each id -> their albums are fetched, all by one worker
a live MediaWiki   titles -> their articles are fetched, all by one worker
ImageCLEF          articles -> sentences, by all workers
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import apache_beam as beam

from pipelines.progress import Progress
from pipelines.settings import HttpConfig
from pipelines.sources.corpora.source import CorpusSource
from pipelines.sources.diy.albums import fetch_albums
from pipelines.sources.diy.listing import read_listing
from pipelines.sources.diy.submissions import (
    Credentials,
    DiySource,
    Submission,
    rank,
    read_dump,
    reject_submission,
)
from pipelines.sources.inputs import read_source, with_web_images
from pipelines.sources.records import CandidateDocument, rejected
from pipelines.sources.takedowns import NAMELESS, Takedowns, without_names
from pipelines.sources.wikipedia.imageclef import Article, ImageclefSource, read_articles, with_sentences
from pipelines.sources.wikipedia.live import WikipediaSource, fetch_articles, list_titles
from pipelines.transforms import Fallible, OnOneWorker, Outcome, Separate
from pipelines.web.client import process_client
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder


@dataclass(eq=False)
class ReadSource(beam.PTransform):
    """Reads any source from the root of a pipeline: gives an `Outcome` of candidate documents.

    Attributes:
        source: settings of the source.
        min_images: an article with fewer is left out before it is parsed.
        begin: what the first worker calls with what it passes on, or None.
    """

    source: Any
    http: HttpConfig
    raw: Folder
    takedowns: Takedowns
    min_images: int
    progress: Progress
    begin: Callable[[str], str] | None = None

    def expand(self, root: beam.Pipeline) -> Outcome:
        source = self.source
        names: Sequence[str] = [type(source).__name__]
        if isinstance(source, CorpusSource):
            names = source.documents
        elif isinstance(source, DiySource) and source.kind == "dump":
            names = source.dump
        start = root | "start" >> beam.Create(names)
        if self.begin is not None:
            start = start | "begin" >> beam.Map(self.begin)
        steps = [start | beam.Reshuffle() | "read" >> Fallible(Stage.SOURCES, self._read)]
        if isinstance(source, DiySource):
            by_id = steps[-1].results | "by id" >> beam.WithKeys(attrgetter("id")) | "group by id" >> beam.GroupByKey()
            steps.append(by_id | "select" >> Fallible(Stage.SOURCES, self._select))
        if isinstance(source, DiySource | WikipediaSource):
            steps.append(steps[-1].results | "fetch" >> OnOneWorker(self._fetch) | Separate())
        elif isinstance(source, ImageclefSource):
            spread = steps[-1].results | "spread" >> beam.Reshuffle()
            steps.append(spread | "sentences" >> Fallible(Stage.SOURCES, self._split, _article_id))
        return Outcome(steps[-1].results, [step.failures for step in steps] | "failures" >> beam.Flatten())

    def _read(self, name: str) -> Iterator[Any]:
        """Yield what the source begins with: documents of files, else submissions, titles or articles."""
        source = self.source
        if isinstance(source, DiySource) and source.kind == "dump":
            yield from read_dump(name, subreddit=source.subreddit)
        elif isinstance(source, DiySource):
            yield from read_listing(source, _credentials(), http=self.http, raw=self.raw)
        elif isinstance(source, WikipediaSource):
            yield from list_titles(source, process_client(self.http, self.raw))
        elif isinstance(source, ImageclefSource):
            yield from read_articles(source, min_images=self.min_images)
        elif isinstance(source, CorpusSource):
            yield from without_names(with_web_images(source.read_shard(name), source.images), self.takedowns)
        else:
            yield from without_names(read_source(source), self.takedowns)

    def _select(self, group: tuple[str, Iterable[Submission]]) -> Iterator[Submission | Failure]:
        record_id, submissions = group
        first, *others = sorted(submissions, key=rank)
        kept = reject_submission(first, min_score=self.source.min_score, takedowns=self.takedowns) or first
        yield kept
        name = NAMELESS if isinstance(kept, Failure) and kept.reason is Reason.TAKEN_DOWN else record_id
        for _ in others:
            yield rejected(name, Reason.DUPLICATE_RECORD, "expected one record of this id, found another")

    def _fetch(self, items: Sequence[Any]) -> Iterator[CandidateDocument | Failure]:
        source, client = self.source, process_client(self.http, self.raw)
        if isinstance(source, DiySource):
            name, found = "albums", fetch_albums(items, client=client, source=source, credentials=_credentials())
        else:
            name, found = "articles", fetch_articles(items, client=client, source=source, min_images=self.min_images)
        for outcome in without_names(found, self.takedowns):
            self.progress.advance(name, isinstance(outcome, CandidateDocument))
            yield outcome

    def _split(self, article: Article) -> Iterator[CandidateDocument | Failure]:
        found = with_web_images(with_sentences(article, source=self.source), self.source.images)
        yield from without_names(found, self.takedowns)


def _credentials() -> Credentials:
    """Return the keys in this worker's environment: a job's graph, which others store, has none."""
    return Credentials.from_environment(os.environ)


def _article_id(article: Article) -> str:
    return article.document.id
