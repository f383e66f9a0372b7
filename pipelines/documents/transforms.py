"""The documents stage in Beam: candidates are filtered, then settled with what became of their images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import apache_beam as beam

from pipelines.documents.settle import check_candidate, settle
from pipelines.progress import Progress
from pipelines.settings import DocumentsConfig
from pipelines.settled import SettledDocument, id_of, judge
from pipelines.sources.records import CandidateDocument
from pipelines.transforms import Fallible, MeetParts, Met, Outcome, StageOutput, count_images, count_results, off
from schemas.failures import Failure, Reason, Stage


@dataclass(eq=False)
class FilterCandidates(beam.PTransform):
    """Drops candidates that cannot become documents, before anything is fetched for them."""

    config: DocumentsConfig

    def expand(self, candidates: beam.PCollection) -> StageOutput:
        checked: Outcome = candidates | Fallible(Stage.DOCUMENTS, self._check)
        return StageOutput(checked.results, (checked.failures,))

    def _check(self, candidate: CandidateDocument) -> Iterator[CandidateDocument | Failure]:
        yield check_candidate(candidate, config=self.config)


@dataclass(eq=False)
class SettleDocuments(beam.PTransform):
    """Joins candidates with what became of their images: gives settled documents.

    Attributes:
        outcomes: PCollections of (address, PackedImage | Failure).
    """

    config: DocumentsConfig
    outcomes: Sequence[beam.PCollection]
    progress: Progress

    def expand(self, candidates: beam.PCollection) -> StageOutput:
        met = candidates | "meet images" >> MeetParts(attrgetter("id"), _addresses, self.outcomes)
        settled: Outcome = met | "settle" >> Fallible(Stage.DOCUMENTS, self._settle)
        counts = (
            *count_images(Stage.IMAGES, self.outcomes),
            *count_results(Stage.DOCUMENTS, settled.results, self.progress),
        )
        return StageOutput(settled.results, (settled.failures,), (Stage.IMAGES, Stage.DOCUMENTS), counts)

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
    progress: Progress

    def expand(self, documents: beam.PCollection) -> StageOutput:
        if not self.config.is_judged_after_dedupe:
            return off(documents)
        judged: Outcome = documents | Fallible(Stage.RULES, self._judge, id_of)
        counts = count_results(Stage.RULES, judged.results, self.progress)
        return StageOutput(judged.results, (judged.failures,), (Stage.RULES,), counts)

    def _judge(self, settled: SettledDocument) -> Iterator[SettledDocument | Failure]:
        yield judge(settled, self.config, Stage.RULES)


def _addresses(candidate: CandidateDocument) -> list[str]:
    return sorted({image.uri for image in candidate.images})
