"""Stories of VIST, in isolation, in sequence, under stress; expected ones are written by hand from the fixtures."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from candidates import after_of, by_id, candidate_of, licences_of, parted, uris_of

from pipelines.sources.datasets import vist
from pipelines.sources.datasets.vist import VistSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vist"
DII_TRAIN = str(FIXTURES / "train.description-in-isolation.json")
DII_TEST = str(FIXTURES / "test.description-in-isolation.json")
SIS_VAL = str(FIXTURES / "val.story-in-sequence.json")

FIVE_LINKS = (Link(0, 0), Link(1, 1), Link(2, 2), Link(3, 3), Link(4, 4))
FARM = tuple(f"train/100{number}.jpg" for number in (1, 2, 3, 4, 5))
CAFE = ("train/1006.jpg", "train/1007.jpg", "train/1008.jpg", "train/1009.jpg", "train/1010.jpg")
FIRST = ("Two ponies in a field.", "A red barn.", "A wire fence.", "A tractor by a tree.", "Hay in the sun.")
SECOND = ("Small horses graze.", "A barn with a white door.", "a wire fence.", "An old tractor.", "Bales of hay.")
THIRD = ("Salt & pepper on a table.", "a man pours coffee .", "A café at night.", "Two cups.", "The bill.")


def read(**settings: Any) -> tuple[list[CandidateDocument], list[Failure]]:
    return parted(VistSource(**settings).read())


def texts(draft: CandidateDocument) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in draft.sentences)


def annotation(photo: int, order: object, **fields: Any) -> list[dict[str, Any]]:
    return [{"photo_flickr_id": str(photo), "photo_order_in_story": order, "original_text": f"about {photo}"} | fields]


def write(path: Path, stories: list[list[list[dict[str, Any]]]], *, photos: int = 2000) -> str:
    annotations = [entry for story in stories for entry in story]
    path.write_text(json.dumps({"images": [{"id": str(n)} for n in range(photos)], "annotations": annotations}))
    return str(path)


def test_descriptions_in_isolation() -> None:
    drafts, _ = read(train=DII_TRAIN, test=DII_TEST)
    documents = {texts(draft): draft for draft in drafts}
    brides = ("A bride.", "A groom.", "A castle.", "A tent.", "A car.")
    assert {key: (uris_of(draft), draft.split) for key, draft in documents.items()} == {
        FIRST: (FARM, Split.TRAIN),
        SECOND: (FARM, Split.TRAIN),  # two documents of one set of images
        THIRD: (CAFE, Split.TRAIN),
        brides: (("test/31.jpg", "test/32.jpg", "test/33.jpg", "test/34.jpg", "test/35.jpg"), Split.TEST),
    }
    assert {(draft.links, after_of(draft)) for draft in drafts} == {(FIVE_LINKS, (0, 1, 2, 3, 4))}
    assert {(draft.dataset, draft.language, draft.provenance.source) for draft in drafts} == {
        ("story-dii", "en", "vist")
    }
    assert documents[FIRST].id.split("-")[:2] == documents[SECOND].id.split("-")[:2]  # same photos, other texts
    assert documents[FIRST].id != documents[SECOND].id


def test_every_story_that_is_dropped_has_its_reason() -> None:
    _, failures = read(train=DII_TRAIN)
    assert Counter(failure.reason for failure in failures) == {
        Reason.MISSING_FIELD: 3,  # an image without id, annotations without order and without a text
        Reason.DUPLICATE_RECORD: 1,  # an annotation twice in a row
        Reason.NOT_FOUND: 1,  # photo 2003 is not among the images
        Reason.TOO_FEW_IMAGES: 2,  # the stories of the annotations without order and without a text
        Reason.DUPLICATE_IMAGE: 1,  # one photo in two places
    }
    assert ["2003" in each.message for each in failures if each.reason is Reason.NOT_FOUND] == [True]


def test_stories_in_sequence_are_grouped_by_id_and_ordered() -> None:
    drafts, failures = read(kind="sis", val=SIS_VAL)
    assert drafts == [
        candidate_of(
            id="sis-500",
            dataset="story-sis",
            sentences=(
                Sentence("[male] went to the fair."),
                Sentence("It rained on friday."),
                Sentence("There were many people."),
                Sentence("He ate."),
                Sentence("He rode the coaster."),
            ),
            image_uris=("val/11.jpg", "val/13.jpg", "val/12.jpg", "val/14.jpg", "val/15.jpg"),
            links=FIVE_LINKS,
            provenance=Provenance("vist", "500"),
            language="en",
            split=Split.VAL,
            after_sentence=(0, 1, 2, 3, 4),
        ),
        candidate_of(
            id="sis-501",
            dataset="story-sis",
            sentences=(
                Sentence("They arrived."),
                Sentence("They sat."),
                Sentence("They talked."),
                Sentence("They drank."),
                Sentence('We danced "until" dawn.'),
            ),
            image_uris=("val/12.jpg", "val/11.jpg", "val/14.jpg", "val/13.jpg", "val/16.jpg"),
            links=FIVE_LINKS,
            provenance=Provenance("vist", "501"),
            language="en",
            split=Split.VAL,
            after_sentence=(0, 1, 2, 3, 4),
        ),
    ]
    assert [(failure.record_id, failure.reason) for failure in failures] == [
        ("val.story-in-sequence.json#12 (annotations)", Reason.MISSING_FIELD),
        ("sis-500", Reason.DUPLICATE_RECORD),
        ("sis-502", Reason.NOT_FOUND),
        ("sis-503", Reason.BROKEN_RECORD),
    ]


def test_the_order_of_annotations_does_not_matter_where_stories_have_ids(tmp_path: Path) -> None:
    content = json.loads(Path(SIS_VAL).read_bytes())
    random.Random(5).shuffle(content["annotations"])
    (tmp_path / "val.json").write_text(json.dumps(content))
    given, _ = read(kind="sis", val=SIS_VAL)
    assert read(kind="sis", val=str(tmp_path / "val.json"))[0] == given


@pytest.mark.parametrize(
    ("orders", "lengths"),
    [
        ([0, 1, 2, 0, 1, 2], [3, 3]),
        ([0, 1, 2, 0, 2, 0, 1, 2], [3, 3]),
        ([0, 1, 1, 2, 0, 1, 2], [3]),
        ([1, 2, 0, 1, 2], [3]),
        ([0, 1, 2, None, 1, 2], [3]),
        ([0, 0, 1, 2], [3]),
        ([0, 1, 2, 3], []),
    ],
)
def test_a_story_starts_where_the_order_returns_to_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orders: list[object], lengths: list[int]
) -> None:
    monkeypatch.setattr(vist, "PHOTOS", 3)
    entries = [annotation(place, order) for place, order in enumerate(orders)]
    drafts, failures = read(train=write(tmp_path / "train.json", [entries]))
    assert [len(draft.sentences) for draft in drafts] == lengths
    assert bool(failures) == (sum(lengths) < len(orders))


def farm_stories(count: int, *, start: int = 0) -> list[list[list[dict[str, Any]]]]:
    """Return stories of five photos each; every other one describes the photos of the one before it again."""
    stories = []
    for story in range(count):
        first = start + 5 * (story // 2)
        stories.append(
            [annotation(first + k, k, original_text=f"photo {first + k}, writer {story % 2}") for k in range(5)]
        )
    return stories


def stress(tmp_path: Path, step: int = 1) -> dict[str, Any]:
    """Return the settings of a source under stress, whose stories come in an order."""
    stories = {"train": farm_stories(24), "test": farm_stories(22, start=1000)}
    files = {split: write(tmp_path / f"{split}{step}.json", some[::step]) for split, some in stories.items()}
    return {"kind": "dii-stress", **files}


def test_stress_documents_have_45_captions_of_other_photos_of_their_split(tmp_path: Path) -> None:
    drafts, failures = read(**stress(tmp_path))
    assert (len(drafts), failures) == (24 + 22, [])
    for draft in drafts:
        assert (draft.dataset, after_of(draft)) == ("dii-stress", ())  # shuffled: no place tells anything
        assert (len(draft.sentences), len(set(texts(draft))), len(uris_of(draft))) == (50, 50, 5)
        photo_of = [int(text.removeprefix("photo ").partition(",")[0]) for text in texts(draft)]
        own = [int(uri.partition("/")[2].removesuffix(".jpg")) for uri in uris_of(draft)]
        assert {photo >= 1000 for photo in photo_of} == {draft.split is Split.TEST}
        assert sorted(link.image for link in draft.links) == [0, 1, 2, 3, 4]
        assert all(photo_of[link.sentence] == own[link.image] for link in draft.links)
        linked = {link.sentence for link in draft.links}
        assert not {photo_of[place] for place in range(50) if place not in linked} & set(own)
    assert len({tuple(link.sentence for link in draft.links or ()) for draft in drafts}) > 40  # shuffled


def test_stress_documents_are_the_same_whatever_the_order_of_stories(tmp_path: Path) -> None:
    assert read(**stress(tmp_path)) == read(**stress(tmp_path, step=-1))


def test_a_stress_document_is_its_story_and_more(tmp_path: Path) -> None:
    settings = stress(tmp_path)
    plain, stressed = (by_id(drafts) for drafts, _ in (read(**settings | {"kind": "dii"}), read(**settings)))
    assert plain.keys() == stressed.keys()
    for key, draft in plain.items():
        assert set(draft.sentences) < set(stressed[key].sentences) and uris_of(draft) == uris_of(stressed[key])


def test_too_few_captions_of_other_photos() -> None:
    drafts, failures = read(kind="dii-stress", train=DII_TRAIN, test=DII_TEST, distractors=5)
    assert sum(failure.reason is Reason.TOO_FEW_SENTENCES for failure in failures) == 1  # the only test story
    for draft in drafts:
        own = {FARM: {*FIRST, *SECOND}, CAFE: {*THIRD}}[uris_of(draft)]
        written = {link.sentence for link in draft.links or ()}
        distractors = {text for place, text in enumerate(texts(draft)) if place not in written}
        assert len(distractors) == 5 and distractors <= ({*FIRST, *SECOND, *THIRD} - own)


def test_photos_have_the_licence_flickr_numbers(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "s.json", farm_stories(1)))
    content = json.loads(path.read_text())
    for image, number in zip(content["images"], ("4", 1, None, "99", "0"), strict=False):
        image["license"] = number
    path.write_text(json.dumps(content))
    drafts, _ = read(train=str(path))
    licences = dict(zip(uris_of(drafts[0]), licences_of(drafts[0]), strict=True))
    known = {f"train/{image['id']}.jpg": image.get("license") for image in content["images"][:5]}
    names = {"4": "CC-BY-2.0", 1: "CC-BY-NC-SA-2.0", "0": "All Rights Reserved"}
    assert licences == {uri: names.get(known.get(uri)) for uri in uris_of(drafts[0])}
    assert any(licences.values())


def test_stories_numbered_anew_in_each_split(tmp_path: Path) -> None:
    files: dict[str, Any] = {}
    for first, split in ((0, "train"), (100, "test")):
        story = [annotation(first + k, None, worker_arranged_photo_order=k, story_id="1") for k in range(5)]
        files[split] = write(tmp_path / f"{split}.json", [story])
    drafts, failures = read(kind="sis", **files)
    assert not failures and {draft.id: texts(draft)[0] for draft in drafts} == {
        "sis-1": "about 0",
        "test-sis-1": "about 100",
    }
