"""Which documents are kept: the thresholds of SPEC 2, each with its reason.

Filters run twice: on candidates, before any image is fetched (what cannot become a document costs no request), and on
documents, once it is known which images are valid.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.takedowns import NO_TAKEDOWNS, Takedowns
from schemas.documents import Document, Sentence
from schemas.failures import Failure, Reason, Stage


def count_tokens(text: str) -> int:
    """Return the number of white-space separated tokens of a text."""
    return len(text.split())


def check_candidate(
    candidate: CandidateDocument, *, config: DocumentsConfig, takedowns: Takedowns = NO_TAKEDOWNS
) -> Iterator[CandidateDocument | Failure]:
    """Yield a candidate that can still become a document, or why it cannot."""
    entry = takedowns.matches_candidate(candidate)
    if entry is not None:
        message = f"on the takedown list by its {entry.partition(':')[0]}"
        yield Failure(Stage.DOCUMENTS, candidate.id, Reason.TAKEN_DOWN, message)
        return
    problem = _sentences_problem(candidate.sentences, config) or _images_problem(len(candidate.image_uris), config)
    yield candidate if problem is None else Failure(Stage.DOCUMENTS, candidate.id, *problem)


def reject_document(document: Document, config: DocumentsConfig, *, missing: int = 0) -> Failure | None:
    """Return why a document of its valid images is dropped, or None where it is kept.

    Args:
        document: with the images that could be had.
        config: the thresholds.
        missing: images that could not be had.
    """
    if missing and not config.keep_partial:
        message = f"expected all of its {len(document.images) + missing} images, {missing} cannot be had"
        return Failure(Stage.DOCUMENTS, document.id, Reason.TOO_FEW_IMAGES, message)
    problem = _images_problem(len(document.images), config)
    return problem and Failure(Stage.DOCUMENTS, document.id, problem[0], f"{problem[1]} that are valid")


def _sentences_problem(sentences: tuple[Sentence, ...], config: DocumentsConfig) -> tuple[Reason, str] | None:
    found = len(sentences)
    if found < config.min_sentences:
        return Reason.TOO_FEW_SENTENCES, f"expected at least {config.min_sentences} sentences, found {found}"
    if found > config.max_sentences:
        return Reason.TOO_MANY_SENTENCES, f"expected at most {config.max_sentences} sentences, found {found}"
    long = sum(count_tokens(sentence.text) >= config.long_sentence_tokens for sentence in sentences)
    if long < config.min_long_sentences:
        wanted = f"{config.min_long_sentences} sentences of {config.long_sentence_tokens} tokens or more"
        return Reason.TOO_FEW_SENTENCES, f"expected at least {wanted}, found {long}"
    return None


def _images_problem(found: int, config: DocumentsConfig) -> tuple[Reason, str] | None:
    if found < config.min_images:
        return Reason.TOO_FEW_IMAGES, f"expected at least {config.min_images} images, found {found}"
    if found > config.max_images:
        return Reason.TOO_MANY_IMAGES, f"expected at most {config.max_images} images, found {found}"
    return None
