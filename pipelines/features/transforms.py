"""The features stage in Beam: it fills packs, and passes on where values are.

One model per worker process; values do not depend on what shares a batch, so batches may form as elements arrive.
Vectors never travel between workers: the shards' writer reads them from the packs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import apache_beam as beam

from pipelines.features.columns import DOCUMENTS, IMAGES, texts_key
from pipelines.features.extraction import Features
from pipelines.features.plan import FeaturePlan
from pipelines.features.values import Rejected
from pipelines.images.store import ImageStore
from pipelines.progress import Progress
from pipelines.transforms import Outcome, Separate
from schemas.documents import Document
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image

BLOCK = 512


@dataclass(eq=False)
class ExtractImages(beam.PTransform):
    """Computes images' missing features: PCollection[(hash, Image)] to PCollection[(hash, Image | Failure)]."""

    plan: FeaturePlan
    store: ImageStore
    progress: Progress

    def expand(self, images: beam.PCollection) -> beam.PCollection:
        return (
            images
            | "spread" >> beam.Reshuffle()
            | "batch" >> beam.BatchElements(min_batch_size=BLOCK, max_batch_size=BLOCK)
            | "extract" >> beam.ParDo(_ExtractImages(self.plan, self.progress, IMAGES, self.store))
        )


@dataclass(eq=False)
class ExtractSentences(beam.PTransform):
    """Computes the missing vectors of documents' sentences: PCollection[Document] to an `Outcome` of documents."""

    plan: FeaturePlan
    progress: Progress

    def expand(self, documents: beam.PCollection) -> Outcome:
        outcome: Outcome = (
            documents
            | "spread" >> beam.Reshuffle()
            | "batch" >> beam.BatchElements(min_batch_size=32, max_batch_size=32)
            | "extract" >> beam.ParDo(_ExtractSentences(self.plan, self.progress, DOCUMENTS))
            | Separate()
        )
        return outcome


class _Extract(beam.DoFn):
    def __init__(self, plan: FeaturePlan, progress: Progress, table: str, store: ImageStore | None = None) -> None:
        self._plan, self._progress, self._table, self._store = plan, progress, table, store

    def setup(self) -> None:
        self._features = Features(self._plan, self._table)

    def finish_bundle(self) -> None:
        self._features.close()


class _ExtractImages(_Extract):
    def process(self, block: Sequence[tuple[str, Image]]) -> Iterator[tuple[str, Image | Failure]]:
        images = [image for _, image in block]

        packs = cast(ImageStore, self._store).packs

        def read(numbers: Sequence[int]) -> list[bytes]:
            refs = packs.index().find([images[number].hash for number in numbers])
            jpegs = packs.read([ref for ref in refs if ref is not None], ["jpeg"])["jpeg"]
            return cast(list[bytes], jpegs.to_pylist())

        for image, found in zip(images, self._features.fill([image.hash for image in images], read), strict=True):
            name = image.source or image.hash
            yield image.hash, _failure(name, found) if isinstance(found, Rejected) else image
            self._progress.advance("features")


class _ExtractSentences(_Extract):
    def process(self, documents: Sequence[Document]) -> Iterator[Document | Failure]:
        texts = [[sentence.text for sentence in document.sentences] for document in documents]

        def read(numbers: Sequence[int]) -> list[list[str]]:
            return [texts[number] for number in numbers]

        for document, found in zip(documents, self._features.fill([*map(texts_key, texts)], read), strict=True):
            yield _failure(document.id, found) if isinstance(found, Rejected) else document
            self._progress.advance("sentences", len(document.sentences))


def _failure(record_id: str, problem: Rejected) -> Failure:
    return Failure(Stage.FEATURES, record_id, Reason.FEATURE_MISSING, problem.message)
