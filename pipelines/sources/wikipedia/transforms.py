"""The sources of `wiki` in Beam: the ImageCLEF collection, and a live MediaWiki."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from pipelines.progress import Progress
from pipelines.settings import HttpConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.inputs import with_web_images
from pipelines.sources.records import WEB
from pipelines.sources.wikipedia.imageclef import Article, ImageclefSource, read_articles, with_sentences
from pipelines.sources.wikipedia.live import WikipediaSource, fetch_articles, list_titles
from pipelines.transforms import Fallible, OnOneWorker, Outcome, Separate
from pipelines.web.client import process_client
from schemas.failures import Failure, Stage
from schemas.lake import Folder


@dataclass(eq=False)
class ReadImageclef(beam.PTransform):
    """Reads the collection from the root of a pipeline: gives an `Outcome` of candidate documents.

    Attributes:
        min_images: articles with fewer are not parsed.
    """

    source: ImageclefSource
    min_images: int

    def expand(self, root: beam.Pipeline) -> Outcome:
        articles = root | "collection" >> beam.Create([None]) | "articles" >> Fallible(Stage.SOURCES, self._read)
        spread = articles.results | "spread" >> beam.Reshuffle()
        complete = spread | "sentences" >> Fallible(Stage.SOURCES, self._split, _id_of)
        return Outcome(complete.results, (articles.failures, complete.failures) | "failures" >> beam.Flatten())

    def _read(self, _: None) -> Iterator[Article | Failure]:
        yield from read_articles(self.source, min_images=self.min_images)

    def _split(self, article: Article) -> Iterator[CandidateDocument | Failure]:
        outcomes, images = with_sentences(article, source=self.source), self.source.images
        yield from with_web_images(outcomes, images) if images.startswith(WEB) else outcomes


def _id_of(article: Article) -> str:
    return article[0].id


@dataclass(eq=False)
class ReadWikipedia(beam.PTransform):
    """Reads articles of a live MediaWiki: gives an `Outcome` of a candidate document of each.

    Attributes:
        min_images: articles with fewer are not split into sentences.
    """

    source: WikipediaSource
    http: HttpConfig
    raw: Folder
    min_images: int
    progress: Progress

    def expand(self, root: beam.Pipeline) -> Outcome:
        titles = root | "wiki" >> beam.Create([None]) | "titles" >> Fallible(Stage.SOURCES, self._titles)
        fetched = titles.results | "articles" >> OnOneWorker(self._fetch, batch_size=256) | Separate()
        return Outcome(fetched.results, (titles.failures, fetched.failures) | "failures" >> beam.Flatten())

    def _titles(self, _: None) -> Iterator[str | Failure]:
        yield from list_titles(self.source, process_client(self.http, self.raw), max_age_s=self.http.listing_max_age_s)

    def _fetch(self, titles: Sequence[str]) -> Iterator[CandidateDocument | Failure]:
        client = process_client(self.http, self.raw)
        for outcome in fetch_articles(titles, client=client, source=self.source, min_images=self.min_images):
            self.progress.advance("articles")
            yield outcome
