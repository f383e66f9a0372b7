"""RecipeQA and the released files of Hessel 2019 in small, in the published forms, with what such files get wrong."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from candidates import by_id as drafts
from candidates import candidate_of, names, parted, uris_of

from pipelines.sources.datasets.hessel import MultiRetrievalSource, RecipeqaSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure

FIXTURES = Path(__file__).parents[2] / "fixtures" / "recipeqa"


def read(train: str = "train.json", val: str = "val.json", **settings: Any) -> list[CandidateDocument | Failure]:
    source = RecipeqaSource(train=str(FIXTURES / train), val=str(FIXTURES / val) if val else "", **settings)
    return list(source.read())


def test_everything_in_the_files_is_a_document_or_a_failure() -> None:
    assert names(read()) == [
        "rice-pudding",
        "bean-stew missing-field",
        "train.json#5 (data) missing-field",
        "train.json#6 (data) broken-record",
        "train.json#14 (data) missing-field",
        "leek-pie broken-record",
        "leek-pie broken-record",
        "plum-cake",
        "plum-cake empty-sentence",
        "bean-stew",
        "empty-steps too-few-sentences",
        "empty-steps empty-sentence",
        "empty-steps empty-sentence",
        "bare-words too-few-images",
        "one-step too-few-images",
        "one-step empty-sentence",
        "rice-pudding duplicate-record",
        "walnut-bread",
        "walnut-bread missing-field",
        "walnut-bread broken-record",
        "42",
    ]


def test_steps_are_sentences_linked_to_their_images() -> None:
    assert drafts(read())["plum-cake"] == candidate_of(
        id="plum-cake",
        dataset="rqa",
        sentences=(
            Sentence("Plum Cake A cake for late summer."),
            Sentence("Dough Mix flour & butter. Add 2 eggs."),
            Sentence("Bake"),
            Sentence("Serve at 20°C with cream."),
        ),
        image_uris=(
            "images-qa/train/images-qa/plum-cake_0_0.jpg",
            "images-qa/train/images-qa/plum-cake_1_0.jpg",
            "images-qa/train/images-qa/plum-cake_1_1.jpg",
            "images-qa/train/images-qa/plum-cake_4_0.PNG",
        ),
        links=(Link(0, 0), Link(1, 1), Link(1, 2), Link(3, 2), Link(3, 3)),
        provenance=Provenance("rqa", "plum-cake"),
        language="en",
        split=Split.TRAIN,
        after_sentence=(0, 1, 1, 3),  # the third image is of two steps: it stands beside the first of them
    )


def test_half_a_pair_is_replaced() -> None:
    assert drafts(read())["bean-stew"] == candidate_of(
        id="bean-stew",
        dataset="rqa",
        sentences=(
            Sentence("Soak Soak the beans èÿ overnight."),
            Sentence("Cook \U0001f600 them \ufffd."),
            Sentence("No picture"),
        ),
        image_uris=("images-qa/train/images-qa/bean-stew_1_0.gif", "images-qa/train/images-qa/bean-stew_2_0.jpg"),
        links=(Link(0, 0), Link(1, 1)),
        provenance=Provenance("rqa", "bean-stew"),
        language="en",
        split=Split.VAL,
        after_sentence=(0, 1),
    )


def test_names_are_patterned_and_judged_where_they_are_read() -> None:
    draft = drafts(read())["walnut-bread"]
    assert (draft.sentences, draft.links) == ((Sentence("Bread"),), (Link(0, 0), Link(0, 1), Link(0, 2)))
    assert uris_of(draft)[::2] == tuple(
        f"images-qa/train/images-qa/{name}" for name in ("../up.jpg", "walnut-bread_1_0.jpeg")
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_questions_does_not_matter(tmp_path: Path, seed: int) -> None:
    """Recipes of five steps in the published form: titles with visual questions, images with textual ones."""
    questions = []
    for recipe in range(20):
        steps = [
            {"id": step, "title": f"T{step}", "body": f"b{recipe}-{step}", "images": [f"{step}.jpg"]}
            for step in range(5)
        ]
        questions += [
            {"recipe_id": f"r{recipe}", "task": "textual_cloze", "context": [step | {"title": ""} for step in steps]},
            {
                "recipe_id": f"r{recipe}",
                "task": "visual_cloze",
                "context": [step | {"images": []} for step in steps[1:]],
            },
            {"recipe_id": f"r{recipe}", "task": "visual_ordering", "context": [steps[0] | {"images": []}]},
        ]
    random.Random(seed).shuffle(questions)
    (tmp_path / "train.json").write_text(json.dumps({"data": questions}))
    found = drafts(RecipeqaSource(train=str(tmp_path / "train.json")).read())
    assert {name: draft.sentences for name, draft in found.items()} == {
        f"r{recipe}": tuple(Sentence(f"T{step} b{recipe}-{step}") for step in range(5)) for recipe in range(20)
    }
    assert {draft.links for draft in found.values()} == {tuple(Link(step, step) for step in range(5))}
    images = {tuple(uri.rpartition("/")[2] for uri in uris_of(draft)) for draft in found.values()}
    assert images == {tuple(f"{step}.jpg" for step in range(5))}


def test_published_val_is_test_and_val_is_drawn_from_train() -> None:
    # sha256sum of "0:<id>" starts with 06 (bean-stew), 18 (walnut-bread), d2 (plum-cake), bc (42); 1/8 is 20.
    assert {key: draft.split for key, draft in drafts(read()).items()} == {
        "rice-pudding": Split.TEST,
        "plum-cake": Split.TRAIN,
        "bean-stew": Split.VAL,
        "walnut-bread": Split.VAL,
        "42": Split.TRAIN,
    }


def test_without_a_val_file_there_is_no_test_split() -> None:
    found = [each for each in parted(read(val=""))[0] if each.id == "rice-pudding"]
    assert [each.split for each in found] == [Split.TRAIN]


def test_ids_that_are_unique_in_one_file_only(tmp_path: Path) -> None:
    def question(recipe: str, body: str) -> dict[str, object]:
        return {"recipe_id": recipe, "context": [{"title": "Mix", "body": body, "images": [f"{body}.jpg"]}]}

    for name, bodies in {"val": ("flour", "milk"), "train": ("eggs", "milk")}.items():
        questions = [question(str(number), body) for number, body in enumerate(bodies, start=1)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"data": questions}))
    source = RecipeqaSource(train=str(tmp_path / "train.json"), val=str(tmp_path / "val.json"))
    found, failures = parted(source.read())
    assert {draft.id: (draft.sentences[0].text, uris_of(draft)[0]) for draft in found} == {
        "1": ("Mix flour", "images-qa/val/images-qa/flour.jpg"),
        "2": ("Mix milk", "images-qa/val/images-qa/milk.jpg"),
        "train-1": ("Mix eggs", "images-qa/train/images-qa/eggs.jpg"),
    }
    assert names(failures) == ["2 duplicate-record"]


ROWS = {"i0": 10, "i1": 11, "i2": 12}


def read_released(tmp_path: Path, corpus: Any, rows: Any = ROWS) -> list[CandidateDocument | Failure]:
    documents, id2row = tmp_path / "docs.json", tmp_path / "id2row.json"
    documents.write_text(json.dumps(corpus))
    id2row.write_text(json.dumps(rows))
    return list(MultiRetrievalSource(documents=str(documents), id2row=str(id2row)).read())


def test_links_are_the_union_of_both_sides(tmp_path: Path) -> None:
    images = [["i0", 1], ["i1", -1], ["i2", 0]]
    sentences = [["a", -1], ["b", 0], ["c", 1]]
    (draft,) = read_released(tmp_path, {"train": [], "val": [[images, sentences, {}]], "test": []})
    assert draft == candidate_of(
        id="val-0",
        dataset="multi-retrieval",
        sentences=(Sentence("a"), Sentence("b"), Sentence("c")),
        image_uris=("row:10", "row:11", "row:12"),
        links=(Link(0, 2), Link(1, 0), Link(2, 1)),
        provenance=Provenance("multi-retrieval", "val-0"),
        split=Split.VAL,
    )


@pytest.mark.parametrize(
    ("image_side", "sentence_side", "links"),
    [(None, None, None), (-1, -1, ()), (None, -1, ()), (0, None, (Link(0, 0),)), (None, 0, (Link(0, 0),))],
)
def test_null_is_unlabelled_and_minus_one_is_no_partner(
    tmp_path: Path, image_side: int | None, sentence_side: int | None, links: object
) -> None:
    (draft,) = read_released(tmp_path, {"test": [[[["i0", image_side]], [["a", sentence_side]], {}]]})
    assert draft.links == links


def test_an_image_without_row_goes_and_links_are_renumbered(tmp_path: Path) -> None:
    images = [["lost", 0], ["i1", 1], ["i0", 0]]
    draft, *failures = read_released(tmp_path, {"train": [[images, [["a", 0], ["b", 1]], {}]]})
    assert (uris_of(draft), draft.links) == (("row:11", "row:10"), (Link(0, 1), Link(1, 0)))
    assert names(failures) == ["train-0 feature-missing"]


def test_links_that_lead_nowhere_go(tmp_path: Path) -> None:
    draft, *failures = read_released(tmp_path, {"train": [[[["i0", 5]], [["a", 0], ["b", -2], ["c", 1]], {}]]})
    assert (draft.links, names(failures)) == ((Link(0, 0),), ["train-0 bad-link"] * 3)


def test_an_id_of_the_meta_data_is_used_unless_one_before_has_it(tmp_path: Path) -> None:
    def document(meta: Any) -> list[Any]:
        return [[["i0", -1]], [["a", -1]], meta]

    metas = [{"id": "x"}, {"id": "same"}, {"id": 7}, "y", None, {"other": 1}, {"id": ""}]
    corpus = {
        "train": [document(meta) for meta in metas],
        "test": [document({"id": "same"}), [[["i0", -1]], [["a", -1]]]],
    }
    assert names(read_released(tmp_path, corpus)) == [
        *("x", "same", "7", "y", "train-4", "train-5", "train-6", "test-0", "test-1")
    ]


@pytest.mark.parametrize(
    "record",
    [7, [], [[]], [7, []], [[["i0"]], []], [[["i0", "0"]], []], [[], [[7, 0]]], [[], ["a"]], [[["i0", True]], []]],
)
def test_records_of_another_form(tmp_path: Path, record: Any) -> None:
    good = [[["i0", -1]], [["a", -1]], {}]
    assert names(read_released(tmp_path, {"train": [record, good]})) == ["train-0 broken-record", "train-1"]
