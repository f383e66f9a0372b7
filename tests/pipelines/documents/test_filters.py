"""Filters of SPEC 2 on drafts and documents, and what becomes of images that could not be had."""

from __future__ import annotations

import dataclasses

import pytest

from pipelines.documents.filters import reject_candidate, reject_document
from pipelines.documents.resolve import resolve
from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from schemas.documents import ImageRef, Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image

LONG = "one two three four five"


def make_draft(sentences: int = 3, images: int = 3, text: str = LONG) -> CandidateDocument:
    return CandidateDocument(
        id="d",
        dataset="diy",
        sentences=(Sentence(text),) * sentences,
        image_uris=tuple(f"http://i/{index}" for index in range(images)),
        links=tuple(Link(index, index) for index in range(min(sentences, images))),
        provenance=Provenance("reddit", "d"),
    )


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (make_draft(), None),
        (make_draft(sentences=2, images=2), None),
        (make_draft(sentences=40, images=40), None),
        (make_draft(sentences=41), Reason.TOO_MANY_SENTENCES),
        (make_draft(images=41), Reason.TOO_MANY_IMAGES),
        (make_draft(images=1), Reason.TOO_FEW_IMAGES),
        (make_draft(sentences=1), Reason.TOO_FEW_SENTENCES),
        (make_draft(sentences=0), Reason.TOO_FEW_SENTENCES),
        (make_draft(text="only four tokens here"), Reason.TOO_FEW_SENTENCES),
    ],
)
def test_a_draft_is_kept_or_dropped_for_its_reason(draft: CandidateDocument, reason: Reason | None) -> None:
    failure = reject_candidate(draft, DocumentsConfig())
    assert (failure.reason if failure else None) == reason


def test_links_follow_the_images_that_are_left() -> None:
    gone = Failure(Stage.IMAGES, "http://i/1", Reason.NOT_FOUND, "404")
    outcomes: dict[str, Image | Failure] = {
        "http://i/0": Image(hash="h0"),
        "http://i/1": gone,
        "http://i/2": Image(hash="h2"),
    }
    resolved = resolve(make_draft(), outcomes)
    assert resolved.document.images == (ImageRef("h0", "http://i/0"), ImageRef("h2", "http://i/2"))
    assert resolved.document.links == (Link(0, 0), Link(2, 1))
    assert len(resolved.document.sentences) == 3
    assert resolved.failures == (dataclasses.replace(gone, record_id="d#1"),)


def test_unknown_links_stay_unknown() -> None:
    draft = dataclasses.replace(make_draft(images=1), links=None)
    assert resolve(draft, {"http://i/0": Image(hash="h")}).document.links is None


def test_a_document_left_with_one_image_is_dropped() -> None:
    gone = Failure(Stage.IMAGES, "x", Reason.NOT_FOUND)
    outcomes: dict[str, Image | Failure] = {f"http://i/{index}": gone for index in range(3)}
    outcomes["http://i/0"] = Image(hash="h")
    failure = reject_document(resolve(make_draft(), outcomes).document, DocumentsConfig())
    assert failure is not None
    assert failure.reason is Reason.TOO_FEW_IMAGES
    assert "found 1" in failure.message
