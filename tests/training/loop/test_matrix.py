"""Recipes x odd documents x batches a step x workers x a resume with other workers: all give what one process gives.

Odd are documents that share a picture across shards, show the same pictures as another, have no sentence, no image, one
sentence, or words that nobody knows.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import pytest
import torch
from several_workers import assert_same_model, run_workers, train_alone

from schemas.documents import Split
from schemas.lake import Lake
from schemas.overrides import override
from training.config import TrainConfig
from training.recipes import recipe

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
