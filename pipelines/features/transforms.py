"""The features stage in Beam: it fills the cache, and passes on images and documents alone.

One model per worker process, made in `setup`; values do not depend on what shares a batch, so batches may form as
elements arrive. Vectors never travel between workers: the shards' writer reads them from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.utils import shared

from pipelines.features.missing import ImageWork, SentenceWork, feature_failure, fill_images, fill_sentences
from pipelines.features.plan import FeaturePlan
from pipelines.images.store import ImageStore
from pipelines.progress import Progress
from schemas.documents import Document
from schemas.failures import Failure
from schemas.images import Image

# Forward passes of one batch: decoding runs ahead within a batch, so a batch is several passes long.
PASSES_AT_ONCE = 4


@dataclass(eq=False)
class ExtractImages(beam.PTransform):
    """Computes images' missing features: PCollection[(hash, Image)] to PCollection[(hash, Image | Failure)]."""

    plan: FeaturePlan
    store: ImageStore
    progress: Progress

    def expand(self, images: beam.PCollection) -> beam.PCollection:
        size = PASSES_AT_ONCE * max(self.plan.compute.batch, self.plan.compute.threads)
        return (
            images
            | "spread" >> beam.Reshuffle()
            | "batch" >> beam.BatchElements(min_batch_size=size, max_batch_size=size)
            | "extract" >> beam.ParDo(_ExtractImages(self.plan, self.store, self.progress))
        )


class _Extracting(beam.DoFn):
    """A DoFn with extractors, loaded once per worker process whatever the number of its threads."""

    def __init__(self, load: Callable[[], list[Any]], tag: str) -> None:
        self._load = load
        self._tag = tag
        self._shared = shared.Shared()
        self.work: list[Any] = []

    def setup(self) -> None:
        self.work = self._shared.acquire(self._boxed, tag=self._tag).items

    def _boxed(self) -> _Loaded:
        return _Loaded(self._load())


class _Loaded:
    """Extractors in a box that `Shared` can hold a weak reference to."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


class _ExtractImages(_Extracting):
    def __init__(self, plan: FeaturePlan, store: ImageStore, progress: Progress) -> None:
        super().__init__(partial(_image_work, plan), f"images {plan.fingerprints}")
        self._store = store
        self._progress = progress

    def process(self, batch: Sequence[tuple[str, Image]]) -> Iterator[tuple[str, Image | Failure]]:
        images = [image for _, image in batch]
        problems: dict[str, Failure] = {}
        for work in self.work:
            for image, problem in zip(images, fill_images(images, work, self._store), strict=True):
                if problem is not None:
                    message = f"{work.column.name}: {problem.message}"
                    problems.setdefault(image.hash, feature_failure(image.source or image.hash, message))
        for image in images:
            yield image.hash, problems.get(image.hash, image)
        self._progress.advance("features", len(batch))


@dataclass(eq=False)
class ExtractSentences(beam.PTransform):
    """Computes the missing vectors of documents' sentences: PCollection[Document] to itself."""

    plan: FeaturePlan
    progress: Progress

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        spread = documents | "spread" >> beam.Reshuffle()
        return spread | "extract" >> beam.ParDo(_ExtractSentences(self.plan, self.progress))


class _ExtractSentences(_Extracting):
    def __init__(self, plan: FeaturePlan, progress: Progress) -> None:
        super().__init__(partial(_sentence_work, plan), f"sentences {plan.fingerprints}")
        self._progress = progress

    def process(self, document: Document) -> Iterator[Document]:
        for work in self.work:
            fill_sentences(document, work)
        self._progress.advance("sentences", len(document.sentences))
        yield document


def _image_work(plan: FeaturePlan) -> list[ImageWork]:
    return [ImageWork(column, plan.image_extractor(column), plan.image_cache(column)) for column in plan.extracted]


def _sentence_work(plan: FeaturePlan) -> list[SentenceWork]:
    return [
        SentenceWork(column, plan.sentence_extractor(column), plan.sentence_cache(column)) for column in plan.sentences
    ]
