"""Candidates by what is said of all their images, that of candidates, and what a source gives in a form to compare."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from pipelines.sources.records import CandidateDocument, CandidateImage
from schemas.failures import Failure


def candidate_of(
    *,
    image_uris: Sequence[str],
    image_sources: Sequence[str | None] = (),
    image_licences: Sequence[str | None] = (),
    image_metadata: Sequence[Any] = (),
    after_sentence: Sequence[int | None] = (),
    **fields: Any,
) -> CandidateDocument:
    """Return a candidate of parallel lists; one that is empty says nothing of any image."""
    columns = [each or repeat(None) for each in (image_sources, image_licences, image_metadata, after_sentence)]
    return CandidateDocument(images=tuple(map(CandidateImage, image_uris, *columns)), **fields)


def uris_of(candidate: CandidateDocument) -> tuple[str, ...]:
    return tuple(image.uri for image in candidate.images)


def _said(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values) if any(value is not None for value in values) else ()


def sources_of(candidate: CandidateDocument) -> tuple[str | None, ...]:
    """Return the address each image came from; () where none has another than its own."""
    return _said([image.source for image in candidate.images])


def licences_of(candidate: CandidateDocument) -> tuple[str | None, ...]:
    return _said([image.licence for image in candidate.images])


def metadata_of(candidate: CandidateDocument) -> tuple[Any, ...]:
    return _said([image.metadata for image in candidate.images])


def after_of(candidate: CandidateDocument) -> tuple[int | None, ...]:
    return _said([image.after for image in candidate.images])


def parted(outcomes: Iterable[CandidateDocument | Failure]) -> tuple[list[CandidateDocument], list[Failure]]:
    """Return the documents and the failures of a source."""
    found = list(outcomes)
    return [each for each in found if isinstance(each, CandidateDocument)], [
        each for each in found if isinstance(each, Failure)
    ]


def by_id(outcomes: Iterable[CandidateDocument | Failure]) -> dict[str, CandidateDocument]:
    return {each.id: each for each in parted(outcomes)[0]}


def names(outcomes: Iterable[CandidateDocument | Failure]) -> list[str]:
    """Return ids of documents, and ids of failures with their reasons."""
    return [f"{each.record_id} {each.reason}" if isinstance(each, Failure) else each.id for each in outcomes]
