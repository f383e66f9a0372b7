"""A model that is started from another one: each word gets the vector of the same word, whatever its row was."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import pytest
import torch

from schemas.documents import Role, Sentence, Split
from schemas.lake import Lake
from schemas.overrides import override
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.setup import new_model
from training.model import LinkModel
from training.recipes import RECIPES, recipe

ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)
SMALL = ("dimensions=16", "text.word_dimensions=16", "text.word_vectors=", "text.aligned_vectors=")
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


def small(name: str, *settings: str) -> TrainConfig:
    config = recipe(name)
    known = [
        each for each in SMALL if hasattr(config.text, each.partition("=")[0].partition(".")[2]) or "." not in each
    ]
    return override(config, [*known, *settings])


def table(model: LinkModel) -> dict[str, torch.Tensor]:
    (name,) = model.word_tables
    return dict(zip(model.vocabulary.words, model.state_dict()[name], strict=False))


@pytest.mark.parametrize("name", READS_WORDS)
def test_each_recipe_continues_on_other_and_on_more_words(name: str, tmp_path: Path) -> None:
    words: tuple[dict[str, str], ...] = ({}, {"seen": "aaaa", "A": "zz"}, {"seen": "seen viewed shown"})
    first, *later = (write(tmp_path / str(number), each, name) for number, each in enumerate(words))
    start = f"training.start_from={tmp_path / 'giver'}"

    def started(lake: Lake, *settings: str) -> LinkModel:
        config = small(name, *settings)
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
