"""Filters of Hessel 2019 on drafts and documents, images that could not be had, and numbers of what is left."""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from candidates import candidate_of

from pipelines.documents.rules import SettledDocument, check_candidate, settle, without_images
from pipelines.images.inspect import PackedImage
from pipelines.recipe import EVERY_DOCUMENT
from pipelines.settings import DocumentsConfig
from pipelines.sources.datasets.documents import read_row
from pipelines.sources.records import CandidateDocument
from schemas.document_rows import from_row, to_row
from schemas.documents import Image, ImageRef, Link, Provenance, Sentence, Split, indexes, numbers_of
from schemas.failures import Failure, Reason, Stage
from training.linking.links import numbered
from training.linking.records import PredictedLink

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
        (make_draft(text=f"{LONG} \ud800"), Reason.BROKEN_RECORD),
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


@pytest.mark.parametrize(("lost", "reason"), [(0, None), (1, Reason.TOO_FEW_IMAGES)])
def test_a_document_may_need_all_of_its_images(lost: int, reason: Reason | None) -> None:
    outcomes: dict[str, PackedImage | Failure] = {f"http://i/{index}": found_image(f"h{index}") for index in range(3)}
    outcomes |= {f"http://i/{index}": Failure(Stage.IMAGES, "x", Reason.NOT_FOUND) for index in range(lost)}
    *_, found = settle(make_draft(), outcomes, DocumentsConfig(keep_partial=False))
    assert (found.reason if isinstance(found, Failure) else None) == reason


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


@pytest.mark.parametrize("seed", range(50))
def test_numbers_lead_to_the_users_own_lists(seed: int) -> None:
    draw = random.Random(seed)
    texts = [draw.choice(["", " ", f"Text {number}."]) for number in range(draw.randrange(1, 9))] + ["Text."]
    paths = [f"{draw.randrange(4)}.jpg" for _ in range(draw.randrange(1, 9))] + ["sound.jpg"]  # some of them twice
    dead, rejected = ({path for path in set(paths) - {"sound.jpg"} if draw.random() < 0.3} for _ in range(2))
    links = [[text, image] for text in range(len(texts)) for image in range(len(paths)) if draw.random() < 0.3]
    record = {"sentences": texts, "images": paths, "links": links}
    candidate, *_ = read_row(record, "a#1", dataset="documents", folder="")
    assert isinstance(candidate, CandidateDocument)
    failed = Failure(Stage.IMAGES, "", Reason.NOT_FOUND, "")
    outcomes = {path: failed if path in dead else PackedImage(Image(path, path), None) for path in paths}
    lost = dict.fromkeys(rejected, failed)
    found = list(settle(candidate, outcomes, EVERY_DOCUMENT))
    (settled,) = (each for each in found if isinstance(each, SettledDocument))
    found += without_images(settled, lost, EVERY_DOCUMENT, stage=Stage.FEATURES)
    left = [each for each in found if isinstance(each, SettledDocument)][-1].document
    document = from_row(to_row(replace(left, split=Split.TRAIN)))
    sentences = document.sentence_numbers or range(len(document.sentences))
    images = document.image_numbers or range(len(document.images))
    assert [texts[number] for number in sentences] == [each.text for each in document.sentences]
    assert [paths[number] for number in images] == [each.source for each in document.images]
    failures = {each.image for each in found if isinstance(each, Failure) and each.image is not None}
    assert {paths[number] for number in failures} == (dead | rejected) & {*paths}
    assert failures | {*images} == {*range(len(paths))}
    given = [PredictedLink("a#1", each.sentence, each.image, 0, 1, "m") for each in document.links or ()]
    shown = {(each.sentence, each.image) for each in numbered(given, sentences, images)}
    assert shown == {(s, i) for s, i in links if texts[s].strip() and paths[i] not in dead | rejected}
    assert [indexes(images)[number] for number in images] == list(range(len(images)))


def test_numbers_that_are_indexes_are_not_kept() -> None:
    assert numbers_of([0, 1]) == () and numbers_of([0, 2]) == (0, 2) and numbers_of([]) == ()
