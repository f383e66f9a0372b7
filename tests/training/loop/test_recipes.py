"""Recipes, on shared pictures, from another model, and x odd documents x batches x workers x a resume: as one process.

Odd are documents that share a picture across shards, show the same pictures as another, have no sentence, no image, one
sentence, or words that nobody knows.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from configurations import shrunk
from several_workers import assert_same_model, run_workers, train_alone

from schemas.documents import Link, Role, Sentence, Split
from schemas.lake import Folder, Lake
from schemas.overrides import override
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.setup import new_model
from training.loop.trainer import fetch_model, store_model, train
from training.model import LinkModel
from training.recipes import RECIPES, recipe

TOLERANCE = 5e-5
COUNTS = {Split.TRAIN: 26, Split.VAL: 24}
SMALL = ("training.epochs=2", "training.negative_documents=3", "training.select=last", "dimensions=8")
WORDS = ("text.word_vectors=", "text.word_dimensions=8", "text.min_word_count=1")
IMAGES, SENTENCES, QUICK = (
    "data.image_features=image-test",
    "data.sentence_features=text-test",
    "training.learning_rate=0.1",
)
LI = (*WORDS, "image.heads=2", "text.heads=2", "text.hidden_dimensions=8", QUICK, "training.warmup_steps=3")
DOCUMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tiny": ("tiny", (IMAGES, SENTENCES)),
    "hessel": ("tiny-hessel-2019", (*WORDS, IMAGES, "objective.mean_epochs=1", QUICK)),
    "recurrent": ("tiny-hessel-2019", (*WORDS, IMAGES, "text.recurrent_dropout=0.4", "training.max_rows=2", QUICK)),
    "li": ("tiny-li-2022", (*LI, "image.hidden_dimensions=8")),
    "li-regions": ("tiny-li-2022", (*LI, "image.transformer=false")),
    "multi-source": (
        "tiny-liu-2020-multi-source",
        (
            *(*WORDS, IMAGES, QUICK, "text.sources=headline,caption", "text.heads=2", "text.head_dimensions=4"),
            *("text.hidden_dimensions=8", "text.buckets=20", "training.frozen_epochs=0", "objective.name=cross"),
        ),
    ),
    "nostruct": ("tiny-hessel-2019", (*WORDS, IMAGES, "objective.name=nostruct", QUICK)),
    "supervised": ("tiny", (IMAGES, SENTENCES, "objective.name=cross+supervised", "objective.labelled_share=0.5")),
}
PAIRS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "alikhani": ("tiny-alikhani-2022", (*WORDS, IMAGES, QUICK)),
    "order": ("tiny-alikhani-2022", (*WORDS, IMAGES, QUICK, "objective.name=order+coherence")),
    "triplet-sum": ("tiny-alikhani-2022", (*WORDS, IMAGES, "objective.name=triplet-sum")),
    "hal": ("tiny-alikhani-2022", (*WORDS, IMAGES, "objective.name=hal")),
    "euclidean": ("tiny-alikhani-2022", (*WORDS, IMAGES, "objective.name=euclidean-batch-hard")),
}


def odd(made: Any, *, is_pairs: bool) -> Any:
    """Return documents some of which are odd; pairs share pictures alone."""
    documents = list(made.documents)
    for number, document in enumerate(documents):
        images, sentences, before = list(document.images), list(document.sentences), documents[number - 1].images
        if number % 3 == 1 and images and before:
            images[0] = before[0]
        if not is_pairs:
            images = list(before) if number % 7 == 3 else [] if number % 11 == 6 else images
            sentences = [] if number % 9 == 5 else sentences[:1] if number % 5 == 2 else sentences
            if number % 8 == 4 and sentences:
                sentences[0] = replace(sentences[0], text="...")
        links = [link for link in document.links or () if link.sentence < len(sentences) and link.image < len(images)]
        documents[number] = replace(document, images=tuple(images), sentences=tuple(sentences), links=tuple(links))
    vectors = {each.id: made.sentence_vectors[each.id][: len(each.sentences)] for each in documents}
    return replace(made, documents=tuple(documents), sentence_vectors=vectors)


def odd_lake(folder: Path, *, is_pairs: bool) -> Lake:
    world = lakes.World(topics=12, sentences=(1, 1 if is_pairs else 5), images=(1, 1 if is_pairs else 4))
    made = {split: odd(lakes.make_documents(split, count, world), is_pairs=is_pairs) for split, count in COUNTS.items()}
    if is_pairs:
        made = {split: lakes.with_relations(each) for split, each in made.items()}
    else:
        made = {split: lakes.with_roles(each, ("headline", "caption")) for split, each in made.items()}
    return lakes.write_lake(folder, made, shards=4, is_rich=True)


def configured(name: str, settings: tuple[str, ...], batches: int) -> TrainConfig:
    return override(recipe(name), [*SMALL, *settings, f"training.batches_per_step={batches}"])


@pytest.mark.trial
@pytest.mark.parametrize("cases", [DOCUMENTS, PAIRS], ids=["documents", "pairs"])
def test_every_recipe_trains_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Mapping[str, tuple[str, tuple[str, ...]]]
) -> None:
    lake = odd_lake(tmp_path / "lake", is_pairs=cases is PAIRS)
    configs = {f"{name}-{k}": configured(*case, k) for name, case in cases.items() for k in (2, 4)}
    monkeypatch.setattr(torch.optim, "Adam", torch.optim.SGD)
    alone = {name: train_alone(lake, tmp_path / name / "alone", config) for name, config in configs.items()}
    for workers in (2, 3, 4):
        fit = {name: config for name, config in configs.items() if workers <= config.training.batches_per_step}
        run_workers(
            lake, workers, {tmp_path / name / str(workers): each for name, each in fit.items()}, optimiser="SGD"
        )
        for name in fit:
            assert_same_model(tmp_path / name / str(workers) / "model", alone[name], TOLERANCE)
    four = {name: config for name, config in configs.items() if config.training.batches_per_step == 4}
    first = {name: replace(each, training=replace(each.training, epochs=1)) for name, each in four.items()}
    for workers, part in ((3, first), (2, four)):
        run_workers(lake, workers, {tmp_path / name / "cut": each for name, each in part.items()}, optimiser="SGD")
    for name in four:
        assert_same_model(tmp_path / name / "cut" / "model", alone[name], TOLERANCE)


SHARDS = 3
ONE_EPOCH = {
    "training.epochs": 1,
    "training.negative_documents": 4,
    "training.warmup_steps": 0,
    "training.start_from": "",
}


def shared_lake(root: Path, config: TrainConfig) -> Lake:
    """Write three shards; the pictures of a document are those of the document of the first shard beside it."""
    is_pair = config.needs.pairs
    sizes = {"sentences": (1, 1), "images": (1, 1)} if is_pair else {}
    world = lakes.World(**sizes, text_dimensions=8, image_dimensions=8)  # one size: `joint-embeddings` compares them
    splits = {}
    for split, count in ((Split.TRAIN, 12), (Split.VAL, 6)):
        made = lakes.make_documents(split, count, world)
        if is_pair:
            made = lakes.with_relations(made)
        made = lakes.with_roles(made, [Role.CAPTION])
        splits[split] = replace(
            made,
            documents=tuple(
                replace(
                    document,
                    images=made.documents[number - number % SHARDS].images,
                    links=document.links if is_pair else (Link(0, 0),),
                )
                for number, document in enumerate(made.documents)
            ),
        )
    return lakes.write_lake(root, splits, shards=SHARDS, world=world, is_rich=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.trial] * ("fine-tuned" in name)) for name in sorted(RECIPES)]
)
def test_every_recipe_trains_where_later_shards_show_no_new_picture(name: str, tmp_path: Path) -> None:
    config = shrunk(RECIPES[name](), ONE_EPOCH)
    data = load_training_data(shared_lake(tmp_path / "lake", config), "synthetic", config.reading)
    documents = lakes.whole(data.training)
    assert len(documents) == 12
    assert len(documents.image_hashes) == len(set(documents.image_hashes))
    shown = [documents.image_hashes[row] for row in documents.image_rows]
    by_id = {key: shown[places] for key, places in zip(documents.ids, documents.images, strict=True)}
    for number in range(12):
        assert by_id[f"train-{number:03d}"] == by_id[f"train-{number - number % SHARDS:03d}"]
    model = LinkModel.load(train(config, data, Context(), run_directory=tmp_path / "run").model)
    assert all(np.isfinite(matrix).all() for matrix in model.similarities(documents))


def test_documents_of_any_shards_show_their_own_pictures(tmp_path: Path) -> None:
    config = shrunk(RECIPES["tiny"](), ONE_EPOCH)
    split = load_training_data(shared_lake(tmp_path / "lake", config), "synthetic", config.reading).training
    whole = lakes.whole(split)
    expected = {key: whole.image_bank[row] for row, key in enumerate(whole.image_hashes)}
    for positions in (np.array([11]), np.array([3, 11, 0, 7]), np.arange(11, 3, -1)):
        found = split.documents(positions)
        assert list(found.ids) == [whole.ids[position] for position in positions]
        assert len(found.image_hashes) == len(set(found.image_hashes))
        for row, position in enumerate(positions):
            hashes = [found.image_hashes[image] for image in found.image_rows[found.images.rows(row)]]
            assert hashes == [whole.image_hashes[image] for image in whole.image_rows[whole.images.rows(position)]]
        assert all(np.array_equal(found.image_bank[row], expected[key]) for row, key in enumerate(found.image_hashes))


ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)
READS_WORDS = sorted(name for name in RECIPES if name.startswith("tiny-"))


def write(root: Path, renamed: Mapping[str, str], name: str) -> Lake:
    """Write what a recipe reads, some words of it renamed."""
    sentences = (4, 4) if "multi-source" in name else (1, 1) if "alikhani" in name else (2, 6)
    images = (1, 1) if "alikhani" in name or "liu" in name else (2, 5)
    world = lakes.World(topics=12, sentences=sentences, images=images)
    made = {split: lakes.make_documents(split, count, world) for split, count in ((Split.TRAIN, 30), (Split.VAL, 24))}
    if "alikhani" in name:
        made = {split: lakes.with_relations(each) for split, each in made.items()}
    if "liu" in name:
        roles = ROLES if "multi-source" in name else (Role.CAPTION,)
        made = {split: lakes.with_roles(each, roles, language="en") for split, each in made.items()}
    made = {split: with_words(each, renamed) for split, each in made.items()}
    return lakes.write_lake(root, made, world=world, is_rich=True)


def with_words(made: Any, renamed: Mapping[str, str]) -> Any:
    def reworded(sentence: Sentence) -> Sentence:
        return replace(sentence, text=" ".join(renamed.get(word, word) for word in sentence.text.split()))

    changed = (replace(each, sentences=tuple(map(reworded, each.sentences))) for each in made.documents)
    return replace(made, documents=tuple(changed))


def table(model: LinkModel) -> dict[str, torch.Tensor]:
    (name,) = model.word_tables
    return dict(zip(model.vocabulary.words, model.state_dict()[name], strict=False))


@pytest.mark.parametrize("name", READS_WORDS)
def test_each_recipe_continues_on_other_and_on_more_words(name: str, tmp_path: Path) -> None:
    words: tuple[dict[str, str], ...] = ({}, {"seen": "aaaa", "A": "zz"}, {"seen": "seen viewed shown"})
    first, *later = (write(tmp_path / str(number), each, name) for number, each in enumerate(words))
    start = f"training.start_from={tmp_path / 'giver'}"

    def started(lake: Lake, *settings: str) -> LinkModel:
        config = override(shrunk(recipe(name), {"text.aligned_vectors": ""}), settings)
        return new_model(config, load_training_data(lake, "synthetic", config.reading), Context())

    giver = started(first)
    giver.save(tmp_path / "giver")
    given = table(giver)
    for lake in later:
        taken = table(started(lake, start))
        common = given.keys() & taken.keys()
        assert len(common) > 5 and given.keys() != taken.keys()
        assert all(torch.equal(given[word], taken[word]) for word in common)
    fresh, kept = table(started(lake)), table(started(lake, start, "training.start_words=false"))
    assert all(torch.equal(fresh[word], vector) for word, vector in kept.items())


def test_a_stored_model_is_fetched_in_place(tmp_path: Path) -> None:
    model, run = tmp_path / "model", Folder(str(tmp_path / "run"))
    (model / "words").mkdir(parents=True)
    (model / "model.json").write_text("{}")
    (model / "words" / "list.txt").write_text("dog")
    store_model(run, model)
    fetched = fetch_model(run)
    assert fetched == tmp_path / "run" / "model"
    assert (fetched / "words" / "list.txt").read_text() == "dog"
