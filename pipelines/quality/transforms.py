"""Filters of quality in Beam: each image is judged once, then each document by the images that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import apache_beam as beam

from pipelines.documents.settle import SettledDocument, hashes_of, id_of, without_images
from pipelines.images.inspect import PackedImage, block_of
from pipelines.packs import PackFolder
from pipelines.quality.filters import document_problem, image_problem
from pipelines.settings import DocumentsConfig, QualityConfig
from pipelines.transforms import MeetParts, Met, StageOutput, fallible, off
from schemas.failures import Failure, Stage

_hash_of: Callable[[PackedImage], str] = attrgetter("image.hash")


@dataclass(eq=False)
class FilterQuality(beam.PTransform):
    """Settled documents to those that satisfy the filters, without the images that do not.

    Attributes:
        config: thresholds; all at their defaults: nothing is done.
        documents: what a document that loses images must still satisfy.
        copies: packs of the pictures.
    """

    config: QualityConfig
    documents: DocumentsConfig
    copies: PackFolder

    def expand(self, documents: beam.PCollection) -> StageOutput:
        if not self.config.is_on:
            return off(documents)
        shown = documents | "images" >> beam.FlatMap(
            lambda settled: [(each.image.hash, each) for each in settled.images]
        )
        once = shown | "once each" >> beam.CombinePerKey(_first) | "images alone" >> beam.Values()
        blocks = once | "by block" >> beam.WithKeys(block_of) | "blocks" >> beam.GroupByKey()
        judged = blocks | "judge images" >> beam.FlatMapTuple(self._judge_images)
        met = documents | "meet images" >> MeetParts(id_of, hashes_of, (judged,))
        judge = partial(_judge, config=self.config, documents=self.documents)
        left = met | "judge" >> fallible(Stage.QUALITY, judge, itemgetter(0))
        return StageOutput(left.results, (left.failures,), {Stage.QUALITY: (left.results,)})

    def _judge_images(self, _: Any, images: Iterable[PackedImage]) -> Iterator[tuple[str, Failure | None]]:
        found = sorted(images, key=_hash_of)
        refs = [packed.copy for packed in found if packed.copy is not None] if self.config.min_sharpness else []
        jpegs = iter(self.copies.read(refs, ["jpeg"])["jpeg"].to_pylist())
        for packed in found:
            image, has_copy = packed.image, bool(refs) and packed.copy is not None
            problem = image_problem(image.width, image.height, next(jpegs) if has_copy else None, self.config)
            yield image.hash, None if problem is None else Failure(Stage.QUALITY, image.hash, *problem)


def _judge(
    met: Met[SettledDocument], config: QualityConfig, documents: DocumentsConfig
) -> Iterator[SettledDocument | Failure]:
    _, (settled,), outcomes = met
    rejected = {key: found for key, found in outcomes.items() if found is not None}
    for kept in without_images(settled, rejected, documents, stage=Stage.QUALITY):
        if isinstance(kept, Failure):
            yield kept
            continue
        document = kept.document
        problem = document_problem(document.sentences, len(document.images), document.language, config)
        yield kept if problem is None else Failure(Stage.QUALITY, document.id, *problem)


def _first(images: Iterable[PackedImage]) -> PackedImage:
    """Return one record of images with equal bytes: what is judged of them is the same."""
    return min(images, key=lambda packed: repr(packed.copy))
