"""RecipeQA in small, in the published form, with what such files get wrong."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from candidates import by_id as drafts
from candidates import candidate_of, names, uris_of

from pipelines.sources.datasets.hessel import RecipeqaSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason

FIXTURES = Path(__file__).parents[2] / "fixtures" / "recipeqa"


def read(train: str = "train.json", val: str = "val.json", **settings: Any) -> list[CandidateDocument | Failure]:
    source = RecipeqaSource(train=str(FIXTURES / train), val=str(FIXTURES / val) if val else "", **settings)
    return list(source.read())


def written(tmp_path: Path, content: Any) -> RecipeqaSource:
    path = tmp_path / "train.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return RecipeqaSource(train=str(path))


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
    found = drafts(list(written(tmp_path, {"data": questions}).read()))
    assert sorted(found) == sorted(f"r{recipe}" for recipe in range(20))
    for recipe in range(20):
        draft = found[f"r{recipe}"]
        assert [sentence.text for sentence in draft.sentences] == [f"T{step} b{recipe}-{step}" for step in range(5)]
        assert draft.links == tuple(Link(step, step) for step in range(5))
        assert [uri.rpartition("/")[2] for uri in uris_of(draft)] == [f"{step}.jpg" for step in range(5)]


def test_published_val_is_test_and_val_is_drawn_from_train() -> None:
    # sha256sum of "0:<id>" starts with 06 (bean-stew), 18 (walnut-bread), d2 (plum-cake), bc (42); 1/8 is 20.
    expected = {
        "rice-pudding": Split.TEST,
        "plum-cake": Split.TRAIN,
        "bean-stew": Split.VAL,
        "walnut-bread": Split.VAL,
        "42": Split.TRAIN,
    }
    assert {key: draft.split for key, draft in drafts(read()).items()} == expected


def test_without_a_val_file_there_is_no_test_split() -> None:
    outcomes = read(val="")
    assert drafts(outcomes)["rice-pudding"].split is Split.TRAIN
    assert names(outcomes).count("rice-pudding") == 1


def test_ids_that_are_unique_in_one_file_only(tmp_path: Path) -> None:
    def question(recipe: str, body: str) -> dict[str, object]:
        return {"recipe_id": recipe, "context": [{"title": "Mix", "body": body, "images": [f"{body}.jpg"]}]}

    for name, bodies in {"val": ("flour", "milk"), "train": ("eggs", "milk")}.items():
        questions = [question(str(number), body) for number, body in enumerate(bodies, start=1)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"data": questions}))
    source = RecipeqaSource(train=str(tmp_path / "train.json"), val=str(tmp_path / "val.json"))
    drafts = {each.id: each for each in source.read() if isinstance(each, CandidateDocument)}
    assert {name: (draft.sentences[0].text, uris_of(draft)[0]) for name, draft in drafts.items()} == {
        "1": ("Mix flour", "images-qa/val/images-qa/flour.jpg"),
        "2": ("Mix milk", "images-qa/val/images-qa/milk.jpg"),
        "train-1": ("Mix eggs", "images-qa/train/images-qa/eggs.jpg"),
    }
    assert [(each.record_id, each.reason) for each in source.read() if isinstance(each, Failure)] == [
        ("2", Reason.DUPLICATE_RECORD)
    ]
