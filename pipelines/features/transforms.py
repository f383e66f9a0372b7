"""The features stage in Beam: it fills packs, and passes on where values are.

    images, once each --> blocks of one pack of copies --> their features, in packs
    documents, in batches -----------------------------> their sentences' features, in packs

Values do not depend on what shares a batch. They never travel between workers: the shards' writer reads them by their
references. Packs are closed when a bundle ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from pipelines.documents.settle import SettledDocument
from pipelines.features.columns import DOCUMENTS, IMAGES, texts_key
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, Features
from pipelines.features.plan import FeaturePlan
from pipelines.features.values import Rejected
from pipelines.images.packed import PackedImage
from pipelines.packs import PackFolder
from pipelines.progress import Progress
from pipelines.transforms import Outcome, Separate
from schemas.failures import Failure, Reason, Stage

BLOCK = 512  # rows of a pack of copies that one worker reads in order
DOCUMENTS_AT_ONCE = 64


@dataclass(eq=False)
class ExtractImages(beam.PTransform):
    """Computes images' missing features: (hash, PackedImage), once each, to (hash, FeaturedImage | Failure)."""

    plan: FeaturePlan
    copies: PackFolder
    progress: Progress

    def expand(self, images: beam.PCollection) -> beam.PCollection:
        if not self.plan.extracted(IMAGES):
            return images | "nothing to extract" >> beam.MapTuple(_without_features)
        return (
            images
            | "choose block" >> beam.MapTuple(_by_block)
            | "gather blocks" >> beam.GroupByKey()
            | "extract" >> beam.ParDo(_ExtractImages(self.plan, self.progress, self.copies))
        )


@dataclass(eq=False)
class ExtractSentences(beam.PTransform):
    """Computes the missing vectors of documents' sentences: SettledDocuments to an `Outcome` of FeaturedDocuments."""

    plan: FeaturePlan
    progress: Progress

    def expand(self, documents: beam.PCollection) -> Outcome:
        batches = documents | "batch" >> beam.BatchElements(DOCUMENTS_AT_ONCE, DOCUMENTS_AT_ONCE)
        extracted: Outcome = batches | "extract" >> beam.ParDo(_ExtractSentences(self.plan, self.progress)) | Separate()
        return extracted


class _Extract(beam.DoFn):
    table = DOCUMENTS

    def __init__(self, plan: FeaturePlan, progress: Progress, copies: PackFolder | None = None) -> None:
        self._plan, self._progress, self._copies = plan, progress, copies

    def setup(self) -> None:
        self._features = Features(self._plan, self.table)

    def finish_bundle(self) -> None:
        self._features.close()


class _ExtractImages(_Extract):
    table = IMAGES

    def process(self, block: tuple[str, Iterable[PackedImage]]) -> Iterator[tuple[str, FeaturedImage | Failure]]:
        packed = sorted(block[1], key=_row)

        def read(numbers: Sequence[int]) -> Iterator[bytes]:
            assert self._copies is not None
            refs = [copy for number in numbers if (copy := packed[number].copy)]
            yield from self._copies.read(refs, ["jpeg"])["jpeg"].to_pylist()

        for each, found in zip(packed, self._features.fill([each.image.hash for each in packed], read), strict=True):
            image = each.image
            if isinstance(found, Rejected):
                yield image.hash, _failure(image.source or image.hash, found)
            else:
                yield image.hash, FeaturedImage(image, each.copy, each.retrieved, found)
            self._progress.advance("features")


class _ExtractSentences(_Extract):
    def process(self, documents: Sequence[SettledDocument]) -> Iterator[FeaturedDocument | Failure]:
        texts = [[sentence.text for sentence in settled.document.sentences] for settled in documents]

        def read(numbers: Sequence[int]) -> Iterator[list[str]]:
            return (texts[number] for number in numbers)

        for settled, found in zip(documents, self._features.fill([*map(texts_key, texts)], read), strict=True):
            if isinstance(found, Rejected):
                yield _failure(settled.document.id, found)
            else:
                yield FeaturedDocument(settled.document, settled.images, found)
            self._progress.advance("sentences", len(settled.document.sentences))


def _by_block(content_hash: str, packed: PackedImage) -> tuple[str, PackedImage]:
    if packed.copy is None:
        return content_hash[:2], packed
    return f"{packed.copy.pack}/{packed.copy.row // BLOCK}", packed


def _row(packed: PackedImage) -> int:
    return packed.copy.row if packed.copy else 0


def _without_features(content_hash: str, packed: PackedImage) -> tuple[str, FeaturedImage]:
    return content_hash, FeaturedImage(packed.image, packed.copy, packed.retrieved)


def _failure(record_id: str, problem: Rejected) -> Failure:
    return Failure(Stage.FEATURES, record_id, Reason.FEATURE_MISSING, problem.message)
