"""The documents stage in Beam: drafts are filtered, then meet what became of their images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam

from pipelines.documents.filters import reject_candidate, reject_document
from pipelines.documents.resolve import resolve, without_images
from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from pipelines.transforms import Fallible, Outcome, Separate
from schemas.documents import Document
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image

ImageOutcome = tuple[str, Image | Failure]


@dataclass(eq=False)
class FilterCandidates(beam.PTransform):
    """Drops drafts that cannot become documents, before anything is fetched for them."""

    config: DocumentsConfig
    takedowns: Takedowns

    def expand(self, drafts: beam.PCollection) -> Outcome:
        outcome: Outcome = drafts | Fallible(Stage.DOCUMENTS, self._check)
        return outcome

    def _check(self, draft: CandidateDocument) -> Iterator[CandidateDocument | Failure]:
        entry = self.takedowns.matches_candidate(draft)
        if entry is not None:
            yield Failure(
                Stage.DOCUMENTS, draft.id, Reason.TAKEN_DOWN, f"on the takedown list by its {entry.partition(':')[0]}"
            )
        else:
            yield reject_candidate(draft, self.config) or draft


class Resolution(NamedTuple):
    """Documents of valid images, and failure rows of images and documents."""

    documents: beam.PCollection
    failures: beam.PCollection


@dataclass(eq=False)
class ResolveImages(beam.PTransform):
    """Joins drafts with the outcome of each of their image addresses: gives a `Resolution`."""

    config: DocumentsConfig
    outcomes: beam.PCollection

    def expand(self, drafts: beam.PCollection) -> Resolution:
        by_id = drafts | "key by document" >> beam.Map(_key_by_id)
        wanted = drafts | "list addresses" >> beam.FlatMap(_addresses)
        found = (wanted, self.outcomes) | "meet outcomes" >> beam.CoGroupByKey() | "spread" >> beam.FlatMap(_spread)
        joined = (by_id, found) | "meet drafts" >> beam.CoGroupByKey()
        outcome = joined | "resolve" >> Fallible(Stage.DOCUMENTS, self._resolve)
        return Resolution(outcome.results, outcome.failures)

    def _resolve(self, group: tuple[str, tuple[Iterable[CandidateDocument], Iterable[ImageOutcome]]]) -> Iterator[Any]:
        _, (drafts, outcomes) = group
        found = dict(outcomes)
        for draft in drafts:
            resolved = resolve(draft, found)
            yield from resolved.failures
            missing = len(resolved.failures)
            yield reject_document(resolved.document, self.config, missing=missing) or resolved.document


@dataclass(eq=False)
class DropRejected(beam.PTransform):
    """Takes images that have no features out of their documents: gives a `Resolution`.

    Attributes:
        outcomes: PCollection[(content hash, Image | Failure)] of the features stage.
    """

    config: DocumentsConfig
    outcomes: beam.PCollection

    def expand(self, documents: beam.PCollection) -> Resolution:
        rejected = beam.pvalue.AsDict(self.outcomes | "only rejected" >> beam.FlatMap(_only_failures))
        outcome = documents | "take out" >> beam.FlatMap(self._take_out, rejected=rejected) | Separate(Stage.SHARDS)
        return Resolution(outcome.results, outcome.failures)

    def _take_out(self, document: Document, rejected: Mapping[str, Failure]) -> Iterator[Any]:
        resolved = without_images(document, rejected)
        yield from resolved.failures
        missing = len(resolved.failures)
        problem = reject_document(resolved.document, self.config, missing=missing) if missing else None
        yield dataclasses.replace(problem, stage=Stage.SHARDS) if problem else resolved.document


def _only_failures(outcome: ImageOutcome) -> Iterator[tuple[str, Failure]]:
    content_hash, found = outcome
    if isinstance(found, Failure):
        yield content_hash, found


@dataclass(eq=False)
class LeaveOut(beam.PTransform):
    """(documents, ids of those to leave out, once each) to the documents that stay: a join, however many go."""

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        documents, unwanted = inputs
        by_id = documents | "key documents" >> beam.Map(_key_document)
        keyed = unwanted | "key ids" >> beam.Map(_key_by_self)
        return (by_id, keyed) | "meet ids" >> beam.CoGroupByKey() | "stay" >> beam.FlatMap(_staying)


def _key_document(document: Document) -> tuple[str, Document]:
    return document.id, document


def _key_by_self(document_id: str) -> tuple[str, None]:
    return document_id, None


def _staying(group: tuple[str, tuple[Iterable[Document], Iterable[None]]]) -> Iterator[Document]:
    _, (documents, unwanted) = group
    if not list(unwanted):
        yield from documents


def _key_by_id(draft: CandidateDocument) -> tuple[str, CandidateDocument]:
    return draft.id, draft


def _addresses(draft: CandidateDocument) -> Iterator[tuple[str, str]]:
    for uri in sorted(set(draft.image_uris)):
        yield uri, draft.id


def _spread(
    group: tuple[str, tuple[Iterable[str], Iterable[Image | Failure]]],
) -> Iterator[tuple[str, ImageOutcome]]:
    uri, (document_ids, outcomes) = group
    (outcome,) = outcomes
    for document_id in document_ids:
        yield document_id, (uri, outcome)


def image_refs(document: Document) -> Iterator[str]:
    """Yield each content hash a document refers to, once."""
    yield from sorted({image.hash for image in document.images})
