"""A candidate becomes a document: addresses of images become content hashes, and images that cannot be had leave.

    images of the candidate   a   b   c   d          b cannot be had
    images of the document    a       c   d          links renumber: 0 -> 0, 2 -> 1, 3 -> 2

A document may lose further images later, when an extractor rejects them: the same rule, `without_images`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelines.documents.filters import reject_document
from pipelines.images.packed import PackedImage
from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from schemas.documents import Document, ImageRef, Link
from schemas.failures import Failure, Stage
from schemas.tables import travels


@travels
@dataclass(frozen=True, slots=True)
class SettledDocument:
    """A document with what is known of each of its images, in the order of `document.images`."""

    document: Document
    images: tuple[PackedImage, ...]


def settle(
    candidate: CandidateDocument, outcomes: Mapping[str, PackedImage | Failure], config: DocumentsConfig
) -> Iterator[SettledDocument | Failure]:
    """Yield a failure row for each image that cannot be had, then the document of the others, or why it is dropped.

    Sentences stay, whatever happens to their images: a document may have more captions than images. A failure row's
    record is `<document id>#<position of the image in the candidate>`.
    """
    kept: dict[int, PackedImage] = {}
    for position, uri in enumerate(candidate.image_uris):
        outcome = outcomes[uri]
        if isinstance(outcome, Failure):
            yield dataclasses.replace(outcome, record_id=f"{candidate.id}#{position}", stage=Stage.IMAGES)
        else:
            kept[position] = outcome
    document = Document(
        id=candidate.id,
        dataset=candidate.dataset,
        sentences=candidate.sentences,
        images=tuple(
            ImageRef(found.image.hash, candidate.image_uris[position], candidate.licence_of(position))
            for position, found in kept.items()
        ),
        links=_renumber(candidate.links, list(kept)),
        provenance=candidate.provenance,
        language=candidate.language,
        split=candidate.split,
    )
    missing = len(candidate.image_uris) - len(kept)
    yield reject_document(document, config, missing=missing) or SettledDocument(document, tuple(kept.values()))


def without_images(
    settled: SettledDocument, rejected: Mapping[str, Failure], config: DocumentsConfig, *, stage: Stage
) -> Iterator[SettledDocument | Failure]:
    """Yield a failure row for each image that a later stage rejected, then the document of the others or why it goes.

    Args:
        settled: a document.
        rejected: failures by content hash.
        config: what is left must still satisfy it.
        stage: that drops what is left with too few images.
    """
    document = settled.document
    kept = [position for position, image in enumerate(document.images) if image.hash not in rejected]
    if len(kept) == len(document.images):
        yield settled
        return
    for position, image in enumerate(document.images):
        if image.hash in rejected:
            yield dataclasses.replace(rejected[image.hash], record_id=f"{document.id}#{position}")
    missing = len(document.images) - len(kept)
    document = dataclasses.replace(
        document,
        images=tuple(document.images[position] for position in kept),
        links=_renumber(document.links, kept),
    )
    problem = reject_document(document, config, missing=missing)
    if problem is not None:
        yield dataclasses.replace(problem, stage=stage)
    else:
        yield SettledDocument(document, tuple(settled.images[position] for position in kept))


def _renumber(links: tuple[Link, ...] | None, kept: list[int]) -> tuple[Link, ...] | None:
    """Return the links to kept images, numbered as these are: `kept[new] == old`."""
    if links is None:
        return None
    new = {old: number for number, old in enumerate(kept)}
    return tuple(dataclasses.replace(link, image=new[link.image]) for link in links if link.image in new)
