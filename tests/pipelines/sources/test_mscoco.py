"""Documents of ten images and ten captions: the facts of the paper on a hand-made file and on a larger one."""

import gzip
import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from candidates import licences_of, parted, uris_of

from pipelines.sources.datasets.mscoco import ImageGroup, MscocoSource, group_images, split_groups
from pipelines.sources.records import CandidateDocument
from schemas.documents import Split
from schemas.failures import Failure, Reason

FIXTURE = str(Path(__file__).parents[2] / "fixtures" / "mscoco" / "captions_train2014.json")
CAPTIONS = {  # what the file says, read by eye
    1: ("A run down street with grass.", "Grass grows in a street."),
    2: ("A man & a party hat.", "A man talks on a phone."),
    3: ("A skateboard jump.", "A boy on a skateboard."),
    4: ("A keyboard on a desk.", "A large mouse pad."),
    5: ("A tennis player.", "A café wall behind a racket."),
    6: ("Two people fix skis.", "Skis in the snow."),
    7: ("Scissors and thread.", "A tape measure."),
    8: ("A blue bus.", "A bus on a street."),
    9: ("A kite over the sea.", "People walk on sand."),
    10: ("A guinea pig.", "A pet in a cage."),
    11: ("A plate of pasta.", "Red sauce in an oven."),
    12: ("A castle.", "Tall grey towers."),
    13: ("A stapler.", "Office supplies."),
    14: ("Bacon in a blender.", "A strange smoothie."),
    15: ("A cat asleep.", "A grey cat on a sofa."),
    16: ("A dog runs.", "A wet dog."),
    17: ("A train at dusk.", "A long train."),
    18: ("Three bananas.", "Fruit in a bowl."),
    19: ("A stop sign.", "A sign with snow on it."),
    20: ("A child with an umbrella.", "Rain on a pavement."),
    21: ("A clock tower.", "Half past nine."),
}


def read(*captions: str, **settings: Any) -> tuple[list[CandidateDocument], list[Failure]]:
    return parted(MscocoSource(captions=captions, **settings).read())


def texts(draft: CandidateDocument) -> list[str]:
    return [sentence.text for sentence in draft.sentences]


def linked_texts(draft: CandidateDocument) -> dict[str, str]:
    """Return the caption of each linked image address."""
    assert draft.links is not None
    return {uris_of(draft)[link.image]: draft.sentences[link.sentence].text for link in draft.links}


def distractors(draft: CandidateDocument) -> set[str]:
    return set(texts(draft)) - set(linked_texts(draft).values())


def corpus(images: int = 300, captions: int = 5, *, folder: str = "") -> dict[str, Any]:
    """Return a captions file whose caption says which image it is about; image 0 has one caption less."""
    return {
        "images": [{"id": image, "file_name": f"{folder}{image}.jpg"} for image in range(images)],
        "annotations": [
            {"id": 10 * image + k, "image_id": image, "caption": f"image {image} caption {k}"}
            for image in range(images)
            for k in range(captions - (image == 0))
        ],
    }


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def image_of(text: str) -> int:
    return int(text.split()[1])


def image_ids(draft: CandidateDocument) -> list[int]:
    return [int(uri.removesuffix(".jpg")) for uri in uris_of(draft)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[CandidateDocument]:
    drafts, failures = read(write(tmp_path_factory.mktemp("coco") / "c.json", corpus()))
    assert failures == []
    return drafts


def test_the_hand_made_file() -> None:
    drafts, failures = read(FIXTURE, folders=("train2014",), val=0.0, test=0.0)
    assert len(drafts) == 4  # 21 images with captions: two documents of ten, in two versions each
    images = {f"train2014/COCO_train2014_{number:012}.jpg": number for number in CAPTIONS}
    for draft in drafts:
        own = {images[uri] for uri in uris_of(draft)}
        assert (len(own), len(linked_texts(draft)), len(distractors(draft)), draft.split) == (10, 5, 5, Split.TRAIN)
        assert all(text in CAPTIONS[images[uri]] for uri, text in linked_texts(draft).items())
        assert distractors(draft) <= {text for image, both in CAPTIONS.items() if image not in own for text in both}
    versions: dict[str, list[CandidateDocument]] = defaultdict(list)
    for draft in drafts:
        versions[draft.provenance.record_id].append(draft)
    for first, second in versions.values():
        assert uris_of(first) == uris_of(second)
        assert [first.id, second.id] == [f"{first.provenance.record_id}-v0", f"{first.provenance.record_id}-v1"]
        for uri in linked_texts(first):  # each version has the other caption
            assert {linked_texts(first)[uri], linked_texts(second)[uri]} == set(CAPTIONS[images[uri]])
    assert [(failure.record_id, failure.reason) for failure in failures][:12] == [
        ("image 7", Reason.DUPLICATE_RECORD),
        ("image 31", Reason.MISSING_FIELD),
        ("captions_train2014.json#26 (images)", Reason.MISSING_FIELD),
        ("captions_train2014.json#27 (images)", Reason.BROKEN_RECORD),
        ("caption 2102", Reason.DUPLICATE_RECORD),
        ("caption 2103", Reason.MISSING_FIELD),
        ("caption 2104", Reason.EMPTY_SENTENCE),
        ("caption 2105", Reason.BROKEN_RECORD),
        ("caption 2106", Reason.MISSING_FIELD),
        ("caption 9901", Reason.NOT_FOUND),
        ("image 30", Reason.TOO_FEW_SENTENCES),
        ("image 32", Reason.TOO_FEW_SENTENCES),
    ]
    assert [failure.reason for failure in failures[12:]] == [Reason.TOO_FEW_IMAGES]  # the twenty-first image


def test_five_links_in_ten_by_ten(built: list[CandidateDocument]) -> None:
    for draft in built:
        assert draft.links is not None
        assert (len(draft.sentences), len(set(uris_of(draft))), len(draft.links)) == (10, 10, 5)
        assert len({link.sentence for link in draft.links}) == len({link.image for link in draft.links}) == 5
        assert draft.links == tuple(sorted(draft.links))
        assert all(image_of(text) == int(uri.removesuffix(".jpg")) for uri, text in linked_texts(draft).items())


def test_distractors_come_from_other_images_of_the_split(built: list[CandidateDocument]) -> None:
    split_of = {image: draft.split for draft in built for image in image_ids(draft)}
    assert len(split_of) == 300
    for draft in built:
        sources = {image_of(text) for text in distractors(draft)}
        assert len(distractors(draft)) == 5 and not sources & set(image_ids(draft))
        assert {split_of[image] for image in sources} == {draft.split}


def test_up_to_five_versions_in_training_and_one_elsewhere(built: list[CandidateDocument]) -> None:
    versions: dict[Split | None, list[list[CandidateDocument]]] = defaultdict(list)
    for draft in built:
        groups = versions[draft.split]
        if draft.id.endswith("-v0"):
            groups.append([])
        groups[-1].append(draft)
    assert {split: len(groups) for split, groups in versions.items()} == {Split.TRAIN: 18, Split.VAL: 6, Split.TEST: 6}
    assert {len(group) for split in (Split.VAL, Split.TEST) for group in versions[split]} == {1}
    for group in versions[Split.TRAIN]:
        has_image_0 = 0 in {image_of(text) for text in linked_texts(group[0]).values()}
        assert len(group) == (4 if has_image_0 else 5)
        assert len({uris_of(draft) for draft in group}) == 1
        for uri in linked_texts(group[0]):
            assert len({linked_texts(draft)[uri] for draft in group}) == len(group)


def test_neither_sentences_nor_images_give_the_links_away(built: list[CandidateDocument]) -> None:
    sentences = Counter(link.sentence for draft in built for link in draft.links or ())
    images = Counter(link.image for draft in built for link in draft.links or ())
    assert len(sentences) == len(images) == 10
    assert len({tuple(link.sentence for link in draft.links or ()) for draft in built}) > 60


def test_the_order_of_records_does_not_matter(tmp_path: Path, built: list[CandidateDocument]) -> None:
    content = corpus()
    for records in content.values():
        random.Random(7).shuffle(records)
    reordered = {key: content[key] for key in ("annotations", "images")}
    again, _ = read(write(tmp_path / "c.json", reordered))
    assert again == built


def test_another_seed_gives_other_documents(tmp_path: Path, built: list[CandidateDocument]) -> None:
    others, _ = read(write(tmp_path / "c.json", corpus()), seed=1)
    assert not {draft.id for draft in others} & {draft.id for draft in built}


def test_what_two_files_hold_counts_once(tmp_path: Path) -> None:
    first, second = corpus(20), corpus(40)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(second).encode()))
    files = (write(tmp_path / "a.json", first), str(tmp_path / "b.json.gz"))
    drafts, failures = read(*files, folders=("train2014",), val=0, test=0)
    assert {uri for draft in drafts for uri in uris_of(draft)} == {f"train2014/{number}.jpg" for number in range(40)}
    assert Counter(failure.reason for failure in failures) == {Reason.DUPLICATE_RECORD: 20 + 99}


@pytest.mark.parametrize("folders", [(), ("a", "b")])
def test_ids_that_are_unique_in_one_file_only(tmp_path: Path, folders: tuple[str, ...]) -> None:
    """Two exports number their images and captions from 1; one picture is in both, under two ids."""
    files, about = list[str](), dict[str, str]()
    for name in "ab":
        images = [{"id": n, "file_name": f"{'' if folders else name}{n}.jpg", "license": 1} for n in range(1, 21)]
        if not folders and name == "b":
            images[4]["file_name"] = "a9.jpg"
        words: list[dict[str, Any]] = [{"id": n, "image_id": n, "caption": f"{name} {n}"} for n in range(1, 21)]
        about |= {
            text["caption"]: f"{name}/{image['file_name']}".removeprefix("" if folders else f"{name}/")
            for text, image in zip(words, images, strict=True)
        }
        licences = [{"id": 1, "name": f"licence {name}"}]
        files.append(write(tmp_path / f"{name}.json", {"images": images, "annotations": words, "licenses": licences}))
    few: dict[str, Any] = {"true_images": 1, "fake_images": 1, "distractors": 1, "val": 0.0, "test": 0.0}
    drafts, failures = read(*files, folders=folders, **few)
    assert len({uri for draft in drafts for uri in uris_of(draft)}) == (40 if folders else 38)
    for draft in drafts:
        for uri, text in linked_texts(draft).items():
            assert about[text] == uri
        assert all(about[text] not in uris_of(draft) for text in distractors(draft))
        for uri, licence in zip(uris_of(draft), licences_of(draft), strict=True):
            assert licence == f"licence {uri[0]}"
    assert [failure.reason for failure in failures] == [Reason.DUPLICATE_RECORD, Reason.TOO_FEW_IMAGES][
        2 * bool(folders) :
    ]


def test_a_split_of_one_group_has_no_distractors(tmp_path: Path) -> None:
    drafts, failures = read(write(tmp_path / "c.json", corpus(50)))
    assert {draft.split for draft in drafts} == {Split.TRAIN}
    assert [failure.reason for failure in failures] == [Reason.TOO_FEW_SENTENCES] * 2


@pytest.mark.parametrize("are_last", [True, False])
def test_images_have_the_licences_their_file_lists(tmp_path: Path, are_last: bool) -> None:
    listed = {"licenses": [{"id": 3, "name": "by", "url": "http://h/by/2.0/"}, {"id": 4, "name": "own"}, {"id": 5}, 7]}
    numbers = [3, 4, 5, "3"]
    images = [{"id": n, "file_name": f"{n}.jpg", "license": number} for n, number in enumerate(numbers)]
    captions = [{"id": n, "image_id": n, "caption": f"Number {n}."} for n in range(4)]
    content = {"images": images, "annotations": captions}
    path = write(tmp_path / "c.json", content | listed if are_last else listed | content)
    drafts, _ = read(path, true_images=2, fake_images=2, distractors=0, val=0, test=0)
    (licences,) = {tuple(sorted(zip(uris_of(draft), licences_of(draft), strict=True))) for draft in drafts}
    assert licences == (("0.jpg", "http://h/by/2.0/"), ("1.jpg", "own"), ("2.jpg", None), ("3.jpg", None))


def test_the_images_of_the_paper_give_its_splits() -> None:
    # Hessel 2019, supplement 1: 4968/1655/1655 documents; MSCOCO train2014 has 82,783 images.
    groups, left_over = group_images(range(82_783), true=5, fake=5, seed=0)
    splits = split_groups(groups, val=0.2, test=0.2, seed=0)
    assert {split: len(members) for split, members in splits.items()} == {
        Split.TRAIN: 4968,
        Split.VAL: 1655,
        Split.TEST: 1655,
    }
    assert len(left_over) == 3
    assert {len(group.true) for group in groups} == {len(group.fake) for group in groups} == {5}
    used = [image for group in groups for image in group.images]
    assert sorted(used + left_over) == list(range(82_783))


@pytest.mark.parametrize(
    ("count", "true", "fake", "groups"),
    [(20, 5, 5, 2), (19, 5, 5, 1), (9, 5, 5, 0), (40, 5, 2, 4), (20, 5, 0, 4), (0, 5, 5, 0)],
)
def test_numbers_of_groups(count: int, true: int, fake: int, groups: int) -> None:
    made, left_over = group_images(range(count), true=true, fake=fake, seed=0)
    assert (len(made), len(left_over)) == (groups, count - groups * (true + fake))


def test_the_id_of_a_group_tells_true_from_fake_and_ignores_order() -> None:
    assert ImageGroup((1, 2), (3, 4)).id == ImageGroup((2, 1), (4, 3)).id != ImageGroup((3, 4), (1, 2)).id


def test_caption_ids_may_start_anew_for_each_image(tmp_path: Path) -> None:
    """As in files like COCO's that number the captions of each image from 0: none is taken for another's."""
    content = corpus(40)
    for caption in content["annotations"]:
        caption["id"] %= 10
    drafts, failures = read(write(tmp_path / "c.json", content), val=0, test=0)
    assert failures == []
    assert len(drafts) == sum(
        5 - (0 in {image_of(t) for t in linked_texts(d).values()}) for d in drafts if d.id.endswith("-v0")
    )
    linked = [pair for draft in drafts for pair in linked_texts(draft).items()]
    assert all(image_of(text) == int(uri.removesuffix(".jpg")) for uri, text in linked)
