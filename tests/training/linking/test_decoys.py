"""Decoys: how many links are false at least, against the true links that the estimate is not shown."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.data.loading import identify, load_training_data, read_for_model
from training.linking.decoys import Decoys, count_decoys
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel, ModelCard
from training.recipes import recipe
from training.similarity.assignment import predicted_pairs

CONFIG = override(recipe("closed-form"), ["dimensions=8", "training.select=last"])


@pytest.fixture(scope="module")
def lake(lakes: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """As many sentences as images, all linked: what is drawn to another sentence is false."""
    world = lakes.World(topics=400, sentences=(4, 4), images=(4, 4), noise=1.0)
    made = {Split.TRAIN: lakes.make_documents(Split.TRAIN, 150, world)}
    made[Split.TEST] = lakes.without_links(lakes.make_documents(Split.TEST, 60, world))
    written: Lake = lakes.write_lake(str(tmp_path_factory.mktemp("lake")), made, world=world)
    return written


def false_links(model: LinkModel, lake: Lake) -> float:
    """Return the true share of false links: in these documents the k-th sentence belongs to the image of its topic."""
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_for_model(model.card.config, model.card.data, manifest, folder, Split.TRAIN, with_truth=True)
    false = total = 0
    for matrix, links in zip(model.similarities(documents), documents.links or (), strict=True):
        true = {(int(s), int(i)) for s, i in links}  # type: ignore[union-attr]
        drawn = list(zip(*(each.tolist() for each in predicted_pairs(matrix)), strict=True))
        false, total = false + len(set(drawn) - true), total + len(drawn)
    return false / total


def test_a_trained_model_has_about_as_many_false_links_as_decoys_say(lake: Lake, tmp_path: Path) -> None:
    data = load_training_data(lake, "synthetic", CONFIG)
    model = LinkModel.load(train(CONFIG, data, Context(), run_directory=tmp_path).model)
    found = count_decoys(model, *read_manifest(lake, "synthetic"))
    assert found.false_share is not None
    assert found.false_share == pytest.approx(false_links(model, lake), abs=0.12)
    assert found.false_share < 0.6


def test_of_a_model_that_knows_nothing_half_of_the_links_go_to_decoys(lake: Lake) -> None:
    identity = identify(*read_manifest(lake, "synthetic"), CONFIG)
    model = LinkModel(ModelCard(config=CONFIG, data=identity), None).eval()
    found = count_decoys(model, *read_manifest(lake, "synthetic"))
    assert found.own / (found.own + found.decoys) == pytest.approx(0.5, abs=0.06)
    assert np.isclose(found.false_share or 0.0, min(1.0, found.decoys / found.own))


def test_it_is_worded_as_a_lower_bound() -> None:
    assert Decoys(40, 10).line().startswith("at least 25% of the links are false")
    assert "lower bound" in Decoys(40, 10).line()
    assert Decoys(10, 30).false_share == 1.0
    assert "nothing to estimate" in Decoys().line()
