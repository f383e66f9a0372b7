"""The features stage in Beam: it fills packs, and gives documents that know where their values are.

    documents --> images, once each --> blocks of one pack of copies --> what packs lack is computed
        `------------------------------- meet ----------------------------> documents, sentences computed

Vectors never travel between workers: the shards' writer reads them from the packs. Values do not depend on what shares
a batch, so blocks may form as elements arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, cast

import apache_beam as beam

from pipelines.documents.rules import SettledDocument, hashes_of, id_of, without_images
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan, Features, missing_feature
from pipelines.features.values import DOCUMENTS, IMAGES, Rejected
from pipelines.images.inspect import PackedImage, block_of
from pipelines.ledger import texts_key
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import DocumentsConfig
from pipelines.transforms import MeetParts, Met, StageOutput, fallible, separate
from schemas.failures import Failure, Stage

DOCUMENTS_AT_ONCE = 32


@dataclass(eq=False)
class ExtractFeatures(beam.PTransform):
    """Settled documents to documents with features.

    Attributes:
        copies: packs of the pictures that extractors read.
        config: what a document that loses images must still satisfy.
    """

    plan: FeaturePlan
    copies: PackFolder
    config: DocumentsConfig

    def expand(self, documents: beam.PCollection) -> StageOutput:
        images = documents | "images" >> beam.FlatMap(_shown) | "once each" >> beam.CombinePerKey(_first)
        if self.plan.extracted(IMAGES):
            extract = beam.ParDo(_ExtractImages(self.plan, IMAGES, self.copies))
            of_blocks = images | "images alone" >> beam.Values() | "by block" >> beam.WithKeys(block_of)
            images = of_blocks | "blocks" >> beam.GroupByKey() | "extract images" >> extract
        else:
            images = images | "without features" >> beam.MapTuple(lambda key, packed: (key, FeaturedImage(packed)))
        met = documents | "meet images" >> MeetParts(id_of, hashes_of, (images,))
        add_images = partial(_add_images, config=self.config)
        featured = met | "add images" >> fallible(Stage.FEATURES, add_images, itemgetter(0))
        complete = (
            featured.results
            | "batch" >> beam.BatchElements(min_batch_size=DOCUMENTS_AT_ONCE, max_batch_size=DOCUMENTS_AT_ONCE)
            | "extract sentences" >> beam.ParDo(_ExtractSentences(self.plan, DOCUMENTS))
            | "complete or failed" >> separate()
        )
        return StageOutput(complete.results, (featured.failures, complete.failures), {Stage.FEATURES: (images,)})


class _Extract(beam.DoFn):
    def __init__(self, plan: FeaturePlan, table: str, copies: PackFolder | None = None) -> None:
        self._plan, self._table, self._copies = plan, table, copies

    def setup(self) -> None:
        self._features = Features(self._plan, self._table)

    def finish_bundle(self) -> None:
        self._features.close()


class _ExtractImages(_Extract):
    def process(self, block: tuple[Any, Iterable[PackedImage]]) -> Iterator[tuple[str, FeaturedImage | Failure]]:
        images = sorted(block[1], key=attrgetter("copy.row"))

        def read(numbers: Sequence[int]) -> Iterator[bytes]:
            refs = [cast(PackRef, images[number].copy) for number in numbers]
            yield from cast(PackFolder, self._copies).read(refs, ["jpeg"])["jpeg"].to_pylist()

        names = [packed.image.source or packed.image.hash for packed in images]
        found_for = self._features.fill([packed.image.hash for packed in images], read, names)
        for packed, name, found in zip(images, names, found_for, strict=True):
            became = missing_feature(name, found) if isinstance(found, Rejected) else FeaturedImage(packed, found)
            yield packed.image.hash, became


class _ExtractSentences(_Extract):
    def process(self, documents: Sequence[FeaturedDocument]) -> Iterator[FeaturedDocument | Failure]:
        texts = [[sentence.text for sentence in featured.document.sentences] for featured in documents]

        def read(numbers: Sequence[int]) -> list[list[str]]:
            return [texts[number] for number in numbers]

        for featured, found in zip(documents, self._features.fill([*map(texts_key, texts)], read), strict=True):
            if isinstance(found, Rejected):
                yield missing_feature(featured.document.id, found)
            else:
                yield replace(featured, sentences=found)


def _shown(settled: SettledDocument) -> Iterator[tuple[str, PackedImage]]:
    for packed, ref in zip(settled.images, settled.document.images, strict=True):
        image, licence = packed.image, ref.licence or None
        metadata = image.metadata if ref.metadata is None else ref.metadata.over(image.metadata)
        if (licence, metadata) != (image.licence, image.metadata):
            packed = replace(packed, image=replace(image, licence=licence, metadata=metadata))  # noqa: PLW2901
        yield image.hash, packed


def _first(images: Iterable[PackedImage]) -> PackedImage:
    """Return one record of images with equal bytes, with all that is stated of them."""
    shown = list(images)
    if len(shown) == 1:
        return shown[0]
    first = min(shown, key=lambda each: (each.image.source or "", repr(each.copy), each.retrieved or ""))
    statements = (statement for each in shown for statement in each.image.all_statements)
    return replace(first, image=first.image.with_statements(statements))


def _add_images(met: Met[SettledDocument], config: DocumentsConfig) -> Iterator[FeaturedDocument | Failure]:
    """Yield a failure row for each image that an extractor rejected, then the document of the others, if it stays."""
    _, (settled,), outcomes = met
    rejected = {key: found for key, found in outcomes.items() if isinstance(found, Failure)}
    for kept in without_images(settled, rejected, config, stage=Stage.FEATURES):
        if isinstance(kept, SettledDocument):
            yield FeaturedDocument(kept.document, tuple(outcomes[image.hash] for image in kept.document.images))
        else:
            yield kept
