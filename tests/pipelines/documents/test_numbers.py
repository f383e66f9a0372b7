"""Whatever a document loses, the numbers of what is left lead to the texts and pictures that its user wrote."""

import random
from dataclasses import replace

import pytest

from pipelines.documents.rules import SettledDocument, settle, without_images
from pipelines.images.inspect import PackedImage
from pipelines.recipe import EVERY_DOCUMENT
from pipelines.sources.datasets.documents import read_row
from pipelines.sources.records import CandidateDocument
from schemas.document_rows import from_row, to_row
from schemas.documents import Image, Split, indexes, numbers_of
from schemas.failures import Failure, Reason, Stage
from schemas.links import PredictedLink
from training.linking.links import numbered


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
