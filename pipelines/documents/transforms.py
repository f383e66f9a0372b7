"""The documents stage in Beam: candidates are filtered, then settled with what became of their images.

Filters of quality come after dedupe: each image is judged once, then each document by the images that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import apache_beam as beam

from pipelines.documents.rules import (
    SettledDocument,
    check_candidate,
    document_problem,
    hashes_of,
    id_of,
    image_problem,
    judge,
    settle,
    without_images,
)
from pipelines.images.inspect import PackedImage, block_of
from pipelines.packs import PackFolder
from pipelines.settings import DocumentsConfig, QualityConfig
from pipelines.sources.records import CandidateDocument, addresses_of
from pipelines.transforms import MeetParts, Met, StageOutput, fallible, off
from schemas.failures import Failure, Reason, Stage


@dataclass(eq=False)
class FilterCandidates(beam.PTransform):
    """Drops candidates that cannot become documents, before anything is fetched for them."""

    config: DocumentsConfig

    def expand(self, candidates: beam.PCollection) -> StageOutput:
        check = fallible(Stage.DOCUMENTS, lambda candidate: [check_candidate(candidate, config=self.config)])
        checked = candidates | "check" >> check
        return StageOutput(checked.results, (checked.failures,))


@dataclass(eq=False)
class SettleDocuments(beam.PTransform):
    """Joins candidates with what became of their images: gives settled documents.

    Attributes:
        outcomes: PCollections of (address, PackedImage | Failure).
    """

    config: DocumentsConfig
    outcomes: tuple[beam.PCollection, ...]

    def expand(self, candidates: beam.PCollection) -> StageOutput:
        met = candidates | "meet images" >> MeetParts(attrgetter("id"), addresses_of, self.outcomes)
        settled = met | "settle" >> fallible(Stage.DOCUMENTS, self._settle)
        passed = {Stage.IMAGES: self.outcomes, Stage.DOCUMENTS: (settled.results,)}
        return StageOutput(settled.results, (settled.failures,), passed)

    def _settle(self, met: Met[CandidateDocument]) -> Iterator[SettledDocument | Failure]:
        document_id, candidates, outcomes = met
        first, *others = sorted(candidates, key=repr)
        for other in others:
            reason = Reason.DUPLICATE_RECORD if other == first else Reason.ID_TAKEN
            yield Failure(Stage.DOCUMENTS, document_id, reason, "another document has the same id")
        yield from settle(first, outcomes, self.config)


@dataclass(eq=False)
class JudgeDocuments(beam.PTransform):
    """Applies the rules to what dedupe left, where they were not applied before."""

    config: DocumentsConfig

    def expand(self, documents: beam.PCollection) -> StageOutput:
        if not self.config.is_judged_after_dedupe:
            return off(documents)
        rule = fallible(Stage.RULES, lambda settled: [judge(settled, self.config, Stage.RULES)], id_of)
        judged = documents | "judge" >> rule
        return StageOutput(judged.results, (judged.failures,), {Stage.RULES: (judged.results,)})


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
