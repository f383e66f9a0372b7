"""Candidates become documents: filtered before any image is fetched, settled once it is known what became of these.

Addresses become content hashes, and images that cannot be had leave (`schemas.documents.Document.with_images`).

Filters of quality, off by default, leave out images and documents by what is measured of them.

    shorter side      of the original, in pixels                                       `min_side_px`
    aspect            its longer side over its shorter one                             `max_aspect`
    sharpness         variance of the Laplacian of the grey 256-px copy, 0 to 255      `min_sharpness`
                      (Pech-Pacheco et al. 2000)
    image-to-text     images of a document over its words, separated by white space    `min_images_per_word`,
                                                                                       `max_images_per_word`
    language          as the source says                                               `languages`

Images are judged first; a document is judged by those that stay. A build applies these functions before it computes
anything of a picture.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from PIL import Image as Pixels

from pipelines.images.inspect import PackedImage
from pipelines.settings import DocumentsConfig, QualityConfig
from pipelines.sources.records import CandidateDocument
from schemas.document_rows import is_placed
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


id_of: Callable[[SettledDocument], str] = attrgetter("document.id")


def hashes_of(settled: SettledDocument) -> list[str]:
    """Return the content hash of each image of a document, once."""
    return sorted({image.hash for image in settled.document.images})


def broken_rule(
    sentences: Sequence[Sentence], images: int, config: DocumentsConfig, *, missing: int = 0
) -> tuple[Reason, str] | None:
    """Return which rule sentences and a number of images break; None: none.

    Args:
        sentences: of a document.
        images: that it has.
        config: the rules.
        missing: images that cannot be had, not among these.
    """
    tokens = [len(sentence.text.split()) for sentence in sentences]  # separated by white space
    long = sum(count >= config.long_sentence_tokens for count in tokens)
    problem = _outside(len(tokens), config.min_sentences, config.max_sentences, "sentences")
    if problem is None and long < config.min_long_sentences:
        wanted = f"{config.min_long_sentences} sentences of {config.long_sentence_tokens} tokens or more"
        problem = Reason.TOO_FEW_SENTENCES, f"expected at least {wanted}, found {long}"
    if problem is None and missing and not config.keep_partial:
        problem = Reason.TOO_FEW_IMAGES, f"expected all of its {images + missing} images, {missing} are missing"
    return problem or _outside(images, config.min_images, config.max_images, "images")


def _outside(found: int, least: int, most: int, what: str) -> tuple[Reason, str] | None:
    """Return why a document with so many sentences or images is dropped, or None where it is not."""
    if found < least:
        return Reason(f"too-few-{what}"), f"expected at least {least} {what}, found {found}"
    if found > most:
        return Reason(f"too-many-{what}"), f"expected at most {most} {what}, found {found}"
    return None


def judge(
    settled: SettledDocument, config: DocumentsConfig, stage: Stage, *, missing: int = 0
) -> SettledDocument | Failure:
    """Return a document, or the rule that it breaks now that `missing` images of it are gone."""
    problem = broken_rule(settled.document.sentences, len(settled.images), config, missing=missing)
    return Failure(stage, id_of(settled), *problem) if problem else settled


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
    yield judge(left, config, stage, missing=missing)


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
            # An image that was embedded in a file has the address that it came from.
            own = dataclasses.replace(outcome.image, source=image.source) if image.source else outcome.image
            kept[position] = dataclasses.replace(outcome, image=own) if image.source else outcome
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


Problem = tuple[Reason, str]


def image_problem(width: int | None, height: int | None, jpeg: bytes | None, config: QualityConfig) -> Problem | None:
    """Return why an image is left out, None where it stays; what is not known of it is no reason.

    Args:
        width: of the original.
        height: of the original.
        jpeg: the 256-px copy; read only where sharpness is asked for.
        config: thresholds.
    """
    if width and height:
        if min(width, height) < config.min_side_px:
            found = f"expected a shorter side of at least {config.min_side_px} px, found {width} x {height}"
            return Reason.TOO_SMALL, found
        if config.max_aspect and max(width, height) > config.max_aspect * min(width, height):
            return Reason.ODD_ASPECT, f"expected an aspect of at most {config.max_aspect:g}, found {width} x {height}"
    if config.min_sharpness and jpeg is not None and (found_sharp := sharpness(jpeg)) < config.min_sharpness:
        return Reason.BLURRED, f"expected a sharpness of at least {config.min_sharpness:g}, found {found_sharp:.1f}"
    return None


def document_problem(
    sentences: Sequence[Sentence], images: int, language: str, config: QualityConfig
) -> Problem | None:
    """Return why a document is left out, None where it stays."""
    if config.languages and language not in config.languages:
        return Reason.OTHER_LANGUAGE, f"expected one of {', '.join(config.languages)}, found {language}"
    words = sum(len(sentence.text.split()) for sentence in sentences)
    ratio = images / words if words else np.inf
    if ratio < config.min_images_per_word or (config.max_images_per_word and ratio > config.max_images_per_word):
        return Reason.IMAGE_TEXT_RATIO, f"{images} images and {words} words, {ratio:.3f} images a word"
    return None


def sharpness(jpeg: bytes) -> float:
    """Return the variance of the Laplacian (4 neighbours) of a picture in grey, its margin of one pixel left out."""
    with Pixels.open(io.BytesIO(jpeg)) as picture:
        grey = np.asarray(picture.convert("L"), np.int32)
    if min(grey.shape) < 3:
        return 0.0
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return round(float(laplacian.var()), 6)
