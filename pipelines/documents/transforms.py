"""The documents stage in Beam: candidates are filtered, then settled with what became of their images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import apache_beam as beam

from pipelines.documents.settle import SettledDocument, check_candidate, id_of, judge, settle
from pipelines.settings import DocumentsConfig
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
