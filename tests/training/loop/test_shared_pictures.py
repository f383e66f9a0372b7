"""Documents that share pictures, in several shards: later shards show nothing that the first has not."""

from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
from configurations import dotted_keys

from schemas.documents import Link, Role, Split
from schemas.lake import Lake
from schemas.overrides import override
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.recipes import RECIPES

SHARDS = 3
SMALL = {
    "dimensions": "16",
    "text.word_vectors": "",
    "text.word_dimensions": "8",
    "text.min_word_count": "1",
    "text.layers": "1",
    "text.heads": "2",
    "text.head_dimensions": "4",
    "text.hidden_dimensions": "16",
    "text.buckets": "64",
    "image.layers": "1",
    "image.heads": "2",
    "image.hidden_dimensions": "16",
    "training.epochs": "1",
    "training.negative_documents": "4",
    "training.warmup_steps": "0",
    "training.start_from": "",
}


def small(name: str) -> TrainConfig:
    config = RECIPES[name]()
    known = dotted_keys(config)
    return override(config, [f"{key}={value}" for key, value in SMALL.items() if key in known])


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
    config = small(name)
    lake = shared_lake(tmp_path / "lake", config)
    data = load_training_data(lake, "synthetic", config.reading)
    documents = lakes.whole(data.training)
    assert len(documents) == 12
    assert len(documents.image_hashes) == len(set(documents.image_hashes))
    shown = [documents.image_hashes[row] for row in documents.image_rows]
    by_id = {key: shown[places] for key, places in zip(documents.ids, documents.images, strict=True)}
    for number in range(12):
        assert by_id[f"train-{number:03d}"] == by_id[f"train-{number - number % SHARDS:03d}"]
    result = train(config, data, Context(), run_directory=tmp_path / "run")
    model = LinkModel.load(result.model)
    assert all(np.isfinite(matrix).all() for matrix in model.similarities(documents))


def test_documents_of_any_shards_show_their_own_pictures(tmp_path: Path) -> None:
    config = small("tiny")
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
