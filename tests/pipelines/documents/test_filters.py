"""Filters of SPEC 2 on drafts and documents, and what becomes of images that could not be had."""

import dataclasses
from collections.abc import Sequence

import pytest
from candidates import candidate_of

from pipelines.documents.rules import SettledDocument, check_candidate, settle, without_images
from pipelines.images.inspect import PackedImage
from pipelines.settings import DocumentsConfig
from pipelines.sources.records import CandidateDocument
from schemas.documents import Image, ImageRef, Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

LONG = "one two three four five"


def make_draft(
    sentences: int = 3, images: int = 3, text: str = LONG, after_sentence: Sequence[int | None] = ()
) -> CandidateDocument:
    return candidate_of(
        id="d",
        dataset="diy",
        sentences=(Sentence(text),) * sentences,
        image_uris=tuple(f"http://i/{index}" for index in range(images)),
        links=tuple(Link(index, index) for index in range(min(sentences, images))),
        provenance=Provenance("reddit", "d"),
        after_sentence=after_sentence,
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
    found = check_candidate(draft, config=DocumentsConfig())
    assert (found.reason if isinstance(found, Failure) else None) == reason


def found_image(content_hash: str) -> PackedImage:
    return PackedImage(Image(hash=content_hash))


def test_links_follow_the_images_that_are_left() -> None:
    gone = Failure(Stage.IMAGES, "http://i/1", Reason.NOT_FOUND, "404")
    outcomes = {"http://i/0": found_image("h0"), "http://i/1": gone, "http://i/2": found_image("h2")}
    failure, settled = settle(make_draft(), outcomes, DocumentsConfig())
    assert settled.document.images == (ImageRef("h0", "http://i/0"), ImageRef("h2", "http://i/2"))
    assert settled.document.links == (Link(0, 0), Link(2, 1))
    assert len(settled.document.sentences) == 3
    assert settled.images == (found_image("h0"), found_image("h2"))
    assert failure == dataclasses.replace(gone, record_id="d", image=1)


def test_unknown_links_stay_unknown() -> None:
    draft = dataclasses.replace(make_draft(images=1), links=None)
    (settled,) = settle(draft, {"http://i/0": found_image("h")}, DocumentsConfig(min_images=1))
    assert settled.document.links is None


def test_a_document_left_with_one_image_is_dropped() -> None:
    gone = Failure(Stage.IMAGES, "x", Reason.NOT_FOUND)
    outcomes = {f"http://i/{index}": gone for index in range(3)} | {"http://i/0": found_image("h")}
    *_, failure = settle(make_draft(), outcomes, DocumentsConfig())
    assert failure.reason is Reason.TOO_FEW_IMAGES
    assert "found 1" in failure.message


def test_a_later_stage_takes_images_out_by_the_same_rule() -> None:
    outcomes = {f"http://i/{index}": found_image(f"h{index}") for index in range(3)}
    (settled,) = settle(make_draft(), outcomes, DocumentsConfig())
    assert isinstance(settled, SettledDocument)
    rejected = {"h1": Failure(Stage.FEATURES, "h1", Reason.FEATURE_MISSING, "no")}
    assert list(without_images(settled, {}, DocumentsConfig(), stage=Stage.FEATURES)) == [settled]
    row, left = without_images(settled, rejected, DocumentsConfig(), stage=Stage.FEATURES)
    assert (row.record_id, row.image) == ("d", 1) and row.stage is Stage.FEATURES
    assert left.document.links == (Link(0, 0), Link(2, 1))
    assert [found.image.hash for found in left.images] == ["h0", "h2"]
    *_, gone = without_images(settled, rejected, DocumentsConfig(min_images=3), stage=Stage.FEATURES)
    assert (gone.stage, gone.reason) == (Stage.FEATURES, Reason.TOO_FEW_IMAGES)


def test_images_that_are_left_stand_where_they_stood() -> None:
    draft = make_draft(after_sentence=(0, None, 3))
    gone = Failure(Stage.IMAGES, "http://i/1", Reason.NOT_FOUND, "404")
    outcomes = {"http://i/0": found_image("h0"), "http://i/1": gone, "http://i/2": found_image("h2")}
    _, settled = settle(draft, outcomes, DocumentsConfig(min_images=1))
    assert settled.document.after_sentence == (0, 3)
    flat = Failure(Stage.FEATURES, "h0", Reason.NOT_FINITE, "not finite")
    _, left = without_images(settled, {"h0": flat}, DocumentsConfig(min_images=1), stage=Stage.FEATURES)
    assert left.document.after_sentence == (3,)
    _, unknown = settle(make_draft(), outcomes, DocumentsConfig(min_images=1))
    assert unknown.document.after_sentence == ()
