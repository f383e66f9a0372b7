"""A draft becomes a document: addresses of images become content hashes, images that could not be had leave.

images of the draft      a   b   c   d          b could not be had
images of the document   a       c   d          links renumber: 0->0, 2->1, 3->2
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.sources.candidate import CandidateDocument
from schemas.documents import Document, ImageRef, Link
from schemas.failures import Failure, Stage
from schemas.images import Image


@dataclass(frozen=True, slots=True)
class Resolved:
    document: Document
    failures: tuple[Failure, ...]


def resolve(draft: CandidateDocument, outcomes: Mapping[str, Image | Failure]) -> Resolved:
    """Return the document of a draft's valid images, and a failure row for each image that is not.

    Sentences stay, whatever happens to their images (a document may have more captions than images). A failure row's
    record is `<document id>#<position of the image in the draft>`.
    """
    images: list[ImageRef] = []
    failures: list[Failure] = []
    renumbered: dict[int, int] = {}
    for position, uri in enumerate(draft.image_uris):
        outcome = outcomes[uri]
        if isinstance(outcome, Failure):
            failures.append(dataclasses.replace(outcome, record_id=f"{draft.id}#{position}", stage=Stage.IMAGES))
        else:
            renumbered[position] = len(images)
            images.append(ImageRef(outcome.hash, uri, draft.licence_of(position)))
    document = Document(
        id=draft.id,
        dataset=draft.dataset,
        sentences=draft.sentences,
        images=tuple(images),
        links=_renumber(draft.links, renumbered),
        provenance=draft.provenance,
        language=draft.language,
        split=draft.split,
    )
    return Resolved(document, tuple(failures))


def without_images(document: Document, rejected: Mapping[str, Failure]) -> Resolved:
    """Return a document without the images that have no features, and a failure row for each place of such an image.

    A failure row's record is `<document id>#<position of the image in the document>`.
    """
    kept = [position for position, image in enumerate(document.images) if image.hash not in rejected]
    failures = tuple(
        dataclasses.replace(rejected[image.hash], record_id=f"{document.id}#{position}")
        for position, image in enumerate(document.images)
        if image.hash in rejected
    )
    links = _renumber(document.links, {position: place for place, position in enumerate(kept)})
    images = tuple(document.images[position] for position in kept)
    return Resolved(dataclasses.replace(document, images=images, links=links), failures)


def _renumber(links: tuple[Link, ...] | None, renumbered: Mapping[int, int]) -> tuple[Link, ...] | None:
    if links is None:
        return None
    return tuple(dataclasses.replace(link, image=renumbered[link.image]) for link in links if link.image in renumbered)
