"""The documents stage in Beam: candidates are filtered, then settled with what became of their images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, TypeVar

import apache_beam as beam

from pipelines.documents.settle import SettledDocument, check_candidate, check_document, settle
from pipelines.progress import Progress
from pipelines.settings import DocumentsConfig
from pipelines.sources.records import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from pipelines.transforms import Fallible, Outcome, StageOutput, count_images, count_results, off
from schemas.failures import Failure, Reason, Stage

T = TypeVar("T")
Met = tuple[str, list[T], Mapping[str, Any]]  # id, the wholes of it, what became of their parts by key
id_of: Callable[[SettledDocument], str] = attrgetter("document.id")


@dataclass(eq=False)
class FilterCandidates(beam.PTransform):
    """Drops candidates that cannot become documents, before anything is fetched for them."""

    config: DocumentsConfig
    takedowns: Takedowns

    def expand(self, candidates: beam.PCollection) -> StageOutput:
        check = partial(check_candidate, config=self.config, takedowns=self.takedowns)
        checked: Outcome = candidates | Fallible(Stage.DOCUMENTS, check)
        return StageOutput(checked.results, (checked.failures,))


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
        check = partial(check_document, config=self.config)
        judged: Outcome = documents | Fallible(Stage.RULES, check, id_of)
        counts = count_results(Stage.RULES, judged.results, self.progress)
        return StageOutput(judged.results, (judged.failures,), (Stage.RULES,), counts)


@dataclass(eq=False)
class MeetParts(beam.PTransform, Generic[T]):
    """Joins wholes with what became of their parts: gives PCollection[`Met`], one for each id.

    Attributes:
        id_of: id of a whole.
        parts_of: keys of its parts, each once.
        outcomes: PCollections of (key, outcome): together, one for each key that any whole has.
    """

    id_of: Callable[[T], str]
    parts_of: Callable[[T], Iterable[str]]
    outcomes: Sequence[beam.PCollection]

    def expand(self, wholes: beam.PCollection) -> beam.PCollection:
        by_id = wholes | "by id" >> beam.WithKeys(self.id_of)
        parts = wholes | "parts" >> beam.FlatMap(self._parts)
        found = (parts, *self.outcomes) | "meet outcomes" >> beam.CoGroupByKey() | "deliver" >> beam.FlatMap(_deliver)
        return (by_id, found) | "meet wholes" >> beam.CoGroupByKey() | "met" >> beam.MapTuple(_met)

    def _parts(self, whole: T) -> Iterator[tuple[str, str]]:
        for key in self.parts_of(whole):
            yield key, self.id_of(whole)


def _deliver(group: tuple[str, tuple[Iterable[Any], ...]]) -> Iterator[tuple[str, tuple[str, Any]]]:
    key, (ids, *outcomes) = group
    for outcome in chain.from_iterable(outcomes):
        for whole_id in ids:
            yield whole_id, (key, outcome)


def _met(whole_id: str, group: tuple[Iterable[Any], Iterable[tuple[str, Any]]]) -> Met[Any]:
    wholes, outcomes = group
    return whole_id, list(wholes), dict(outcomes)


@dataclass(eq=False)
class LeaveOut(beam.PTransform):
    """(settled documents, ids of those to leave out, once each) to the documents that stay, however many go."""

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        documents, unwanted = inputs
        by_id = documents | "key documents" >> beam.WithKeys(id_of)
        keyed = unwanted | "key ids" >> beam.WithKeys(str)
        return (by_id, keyed) | "meet ids" >> beam.CoGroupByKey() | "stay" >> beam.FlatMapTuple(_staying)


def _staying(_: str, group: tuple[Iterable[SettledDocument], Iterable[str]]) -> Iterable[SettledDocument]:
    documents, unwanted = group
    return () if list(unwanted) else documents


def hashes_of(settled: SettledDocument) -> list[str]:
    """Return the content hash of each image of a document, once."""
    return sorted({image.hash for image in settled.document.images})


def _addresses(candidate: CandidateDocument) -> list[str]:
    return sorted(set(candidate.image_uris))
