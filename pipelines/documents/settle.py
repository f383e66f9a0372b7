"""Which candidates become documents, by the thresholds of SPEC 2, and what is left of them.

Candidates are filtered before any image is fetched: what cannot become a document costs no request; or, where the rules
are of valid images and all documents are to be compared (`is_judged_after_dedupe`), after dedupe. Once it is known
what became of their images, addresses become content hashes, and images that cannot be had leave
(`schemas.documents.Document.with_images`). A document may lose further images later, when an extractor rejects them:
the same rule, `without_images`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.images.packed import PackedImage
from pipelines.settings import DocumentsConfig
from pipelines.sources.records import CandidateDocument
from pipelines.sources.takedowns import NO_TAKEDOWNS, Takedowns, taken_down
from schemas.documents import Document, ImageRef, Sentence
from schemas.failures import Failure, Reason, Stage
from schemas.tables import travels
from schemas.versions import canonical_json, content


@travels
@dataclass(frozen=True, slots=True)
class SettledDocument:
    """A document with what is known of each of its images, in the order of `document.images`."""

    document: Document
    images: tuple[PackedImage, ...]


def check_candidate(
    candidate: CandidateDocument, *, config: DocumentsConfig, takedowns: Takedowns = NO_TAKEDOWNS
) -> Iterator[CandidateDocument | Failure]:
    """Yield a candidate that can still become a document, or why it cannot."""
    entry = takedowns.matches_candidate(candidate)
    if candidate.image_sources:  # a picture that is embedded goes by the address it came from
        addresses = (candidate.source_of(number) for number in range(len(candidate.image_uris)))
        pairs = zip(candidate.image_uris, addresses, strict=True)
        uris = (source if takedowns.matches_address(source) else uri for uri, source in pairs)
        candidate = dataclasses.replace(candidate, image_uris=tuple(uris))
    problem = broken_rule(candidate.sentences, len(candidate.image_uris), config)
    try:
        canonical_json(content(candidate)).encode()
    except (TypeError, ValueError) as odd:  # a number that is none, half a character
        problem = Reason.BROKEN_RECORD, f"expected values that can be stored: {odd}"
    if entry is not None:
        yield taken_down(Stage.DOCUMENTS, entry)
    else:
        yield Failure(Stage.DOCUMENTS, candidate.id, *problem) if problem else candidate


def check_document(settled: SettledDocument, *, config: DocumentsConfig) -> Iterator[SettledDocument | Failure]:
    """Yield a document whose sentences and valid images satisfy the rules, or which of them it breaks."""
    document = settled.document
    problem = broken_rule(document.sentences, len(settled.images), config)
    yield Failure(Stage.RULES, document.id, *problem) if problem else settled


def broken_rule(sentences: Sequence[Sentence], images: int, config: DocumentsConfig) -> tuple[Reason, str] | None:
    """Return which rule sentences and a number of images break; None: none."""
    tokens = [len(sentence.text.split()) for sentence in sentences]  # separated by white space
    long = sum(count >= config.long_sentence_tokens for count in tokens)
    problem = _outside(len(tokens), config.min_sentences, config.max_sentences, "sentences")
    if problem is None and long < config.min_long_sentences:
        wanted = f"{config.min_long_sentences} sentences of {config.long_sentence_tokens} tokens or more"
        problem = Reason.TOO_FEW_SENTENCES, f"expected at least {wanted}, found {long}"
    return problem or _outside(images, config.min_images, config.max_images, "images")


def _outside(found: int, least: int, most: int, what: str) -> tuple[Reason, str] | None:
    """Return why a document with so many sentences or images is dropped, or None where it is not."""
    if found < least:
        return Reason(f"too-few-{what}"), f"expected at least {least} {what}, found {found}"
    if found > most:
        return Reason(f"too-many-{what}"), f"expected at most {most} {what}, found {found}"
    return None


def settle(
    candidate: CandidateDocument, outcomes: Mapping[str, PackedImage | Failure], config: DocumentsConfig
) -> Iterator[SettledDocument | Failure]:
    """Yield a failure row for each image that cannot be had, then the document of the others, or why it is dropped.

    Sentences stay, whatever happens to their images: a document may have more captions than images.
    """
    kept: dict[int, PackedImage] = {}
    numbers = candidate.image_numbers or range(len(candidate.image_uris))
    images = list[ImageRef]()
    for position, uri in enumerate(candidate.image_uris):
        outcome, source = outcomes[uri], candidate.source_of(position)
        images.append(ImageRef("", source, candidate.licence_of(position), candidate.metadata_of(position)))
        if isinstance(outcome, Failure):
            yield dataclasses.replace(outcome, record_id=candidate.id, image=numbers[position], stage=Stage.IMAGES)
        else:
            kept[position] = _from(outcome, source) if candidate.image_sources else outcome
            images[position] = dataclasses.replace(images[position], hash=outcome.image.hash)
    document = Document(
        id=candidate.id,
        dataset=candidate.dataset,
        sentences=candidate.sentences,
        images=tuple(images),
        links=candidate.links,
        provenance=candidate.provenance,
        language=candidate.language,
        split=candidate.split,
        after_sentence=candidate.after_sentence,
        given=candidate.given,
        sentence_numbers=candidate.sentence_numbers,
        image_numbers=candidate.image_numbers,
    ).with_images(list(kept))
    missing = len(images) - len(kept)
    yield _judge(SettledDocument(document, tuple(kept.values())), missing, config, Stage.DOCUMENTS)


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
    numbers = document.image_numbers or range(len(document.images))
    kept = [position for position, image in enumerate(document.images) if image.hash not in rejected]
    missing = len(document.images) - len(kept)
    if not missing:
        yield settled
        return
    for position, image in enumerate(document.images):
        if image.hash in rejected:
            yield dataclasses.replace(rejected[image.hash], record_id=document.id, image=numbers[position])
    left = SettledDocument(document.with_images(kept), tuple(settled.images[position] for position in kept))
    yield _judge(left, missing, config, stage)


def _judge(settled: SettledDocument, missing: int, config: DocumentsConfig, stage: Stage) -> SettledDocument | Failure:
    """Return a document, or why it is dropped now that `missing` images of it are gone."""
    document, found = settled.document, len(settled.images)
    if missing and not config.keep_partial:
        message = f"expected all of its {found + missing} images, {missing} cannot be had"
        return Failure(stage, document.id, Reason.TOO_FEW_IMAGES, message)
    problem = _outside(found, config.min_images, config.max_images, "images")
    return Failure(stage, document.id, problem[0], f"{problem[1]} that are valid") if problem else settled


def _from(found: PackedImage, source: str) -> PackedImage:
    """Return an image that was embedded in a file, with the address it came from."""
    return dataclasses.replace(found, image=dataclasses.replace(found.image, source=source))
