"""Filters of quality in Beam: each image is judged once, then each document by the images that stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import apache_beam as beam

from pipelines.documents.settle import SettledDocument, hashes_of, id_of, without_images
from pipelines.images.inspect import PackedImage
from pipelines.packs import PackFolder
from pipelines.quality.filters import document_problem, image_problem
from pipelines.settings import DocumentsConfig, QualityConfig
from pipelines.transforms import MeetParts, Met, StageOutput, fallible, off
from schemas.failures import Failure, Stage

BLOCK = 512  # images of one pack that a worker judges at once


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
        once = documents | "images" >> beam.FlatMap(_shown) | "once each" >> beam.CombinePerKey(_first)
        blocks = once | "by block" >> beam.Map(_by_block) | "blocks" >> beam.GroupByKey()
        judged = blocks | "judge images" >> beam.FlatMapTuple(self._judge_images)
        met = documents | "meet images" >> MeetParts(id_of, hashes_of, (judged,))
        judge = partial(_judge, config=self.config, documents=self.documents)
        left = met | "judge" >> fallible(Stage.QUALITY, judge, itemgetter(0))
        return StageOutput(left.results, (left.failures,), {Stage.QUALITY: (left.results,)})

    def _judge_images(self, _: Any, images: Iterable[tuple[str, PackedImage]]) -> Iterator[tuple[str, Failure | None]]:
        found = sorted((packed for _, packed in images), key=lambda packed: packed.image.hash)
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


def _shown(settled: SettledDocument) -> Iterator[tuple[str, PackedImage]]:
    for packed in settled.images:
        yield packed.image.hash, packed


def _first(images: Iterable[PackedImage]) -> PackedImage:
    """Return one record of images with equal bytes: what is judged of them is the same."""
    return min(images, key=lambda packed: repr(packed.copy))


def _by_block(keyed: tuple[str, PackedImage]) -> tuple[tuple[str, int], tuple[str, PackedImage]]:
    copy = keyed[1].copy
    return ("", 0) if copy is None else (copy.pack, copy.row // BLOCK), keyed
