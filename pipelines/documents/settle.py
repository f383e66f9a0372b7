"""Candidates become documents: filtered before any image is fetched, settled once it is known what became of these.

Addresses become content hashes, and images that cannot be had leave (`schemas.documents.Document.with_images`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from pipelines.images.packed import PackedImage
from pipelines.settings import DocumentsConfig
from pipelines.settled import SettledDocument, broken_rule, judge
from pipelines.sources.records import CandidateDocument
from schemas.document_rows import is_placed
from schemas.documents import Document, ImageRef
from schemas.failures import Failure, Reason, Stage
from schemas.versions import canonical_json, content


def check_candidate(candidate: CandidateDocument, *, config: DocumentsConfig) -> CandidateDocument | Failure:
    """Return a candidate that can still become a document, or why it cannot."""
    problem = broken_rule(candidate.sentences, len(candidate.images), config)
    try:
        canonical_json(content(candidate)).encode()
    except (TypeError, ValueError) as odd:  # a number that is none, half a character
        problem = Reason.BROKEN_RECORD, f"expected values that can be stored: {odd}"
    return Failure(Stage.DOCUMENTS, candidate.id, *problem) if problem else candidate


def settle(
    candidate: CandidateDocument, outcomes: Mapping[str, PackedImage | Failure], config: DocumentsConfig
) -> Iterator[SettledDocument | Failure]:
    """Yield a failure row for each image that cannot be had, then the document of the others, or why it is dropped.

    Sentences stay, whatever happens to their images: a document may have more captions than images.
    """
    kept: dict[int, PackedImage] = {}
    numbers = candidate.image_numbers or range(len(candidate.images))
    images = list[ImageRef]()
    for position, image in enumerate(candidate.images):
        outcome = outcomes[image.uri]
        images.append(ImageRef("", image.source or image.uri, image.licence, image.metadata))
        if isinstance(outcome, Failure):
            yield dataclasses.replace(outcome, record_id=candidate.id, image=numbers[position], stage=Stage.IMAGES)
        else:
            kept[position] = _from(outcome, image.source) if image.source else outcome
            images[position] = dataclasses.replace(images[position], hash=outcome.image.hash)
    after = tuple(image.after for image in candidate.images)
    document = Document(
        id=candidate.id,
        dataset=candidate.dataset,
        sentences=candidate.sentences,
        images=tuple(images),
        links=candidate.links,
        provenance=candidate.provenance,
        language=candidate.language,
        split=candidate.split,
        after_sentence=after if is_placed(after) else (),
        given=candidate.given,
        sentence_numbers=candidate.sentence_numbers,
        image_numbers=candidate.image_numbers,
    ).with_images(list(kept))
    missing = len(images) - len(kept)
    yield judge(SettledDocument(document, tuple(kept.values())), config, Stage.DOCUMENTS, missing=missing)


def _from(found: PackedImage, source: str) -> PackedImage:
    """Return an image that was embedded in a file, with the address it came from."""
    return dataclasses.replace(found, image=dataclasses.replace(found.image, source=source))
