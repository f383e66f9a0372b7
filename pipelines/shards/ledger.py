"""The rows of the ledger: one for each document that was read, and for each address that gave an image."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.features.values import texts_key
from pipelines.images.obtain import Found
from pipelines.images.packed import PackedImage
from pipelines.sources.records import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from schemas.ledger import LedgerRow, Read


def row_of_document(candidate: CandidateDocument, takedowns: Takedowns) -> Iterator[LedgerRow]:
    """Yield the row of a document, unless the list takes it out."""
    if takedowns.matches_candidate(candidate) is None:
        read = candidate.provenance
        yield LedgerRow(
            Read.DOCUMENT,
            candidate.id,
            read.url,
            read.record_id,
            read.captured,
            texts_key(sentence.text for sentence in candidate.sentences),
            candidate.image_uris,
            tuple(map(candidate.source_of, range(len(candidate.image_uris)))) if candidate.image_sources else (),
        )


def row_of_image(address: str, found: Found) -> Iterator[LedgerRow]:
    """Yield the row of an address that gave an image."""
    if isinstance(found, PackedImage):
        yield LedgerRow(Read.IMAGE, found.image.hash, address)
