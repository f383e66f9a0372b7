"""Order, learnt without links: bins and weights by hand, and links that get better where there is one."""

from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.closed_form.plans import BINS, FOLDS, Order, bins_of, masses, relative_places
from training.config import TrainConfig
from training.data.documents import UNKNOWN_PLACE, DocumentSet, GivenDocument, document_set
from training.data.loading import load_training_data
from training.data.ragged import Ragged
from training.loop.context import Context
from training.loop.trainer import train
from training.metrics.links import score_documents
from training.model import LinkModel
from training.recipes import recipe
from training.shards import embed_split

NOISE, SIZES = 5.0, (6, 9)


def documents(texts: int, images: int, after: tuple[int | None, ...] = ()) -> DocumentSet:
    vectors = np.zeros((images, 2), np.float32)
    return document_set([GivenDocument(texts=["a"] * texts, image_vectors=vectors, after_sentence=after)])


def test_places_are_relative_and_the_layout_comes_before_the_number() -> None:
    texts, images = relative_places(documents(5, 3))
    assert texts.tolist() == [0, 0.25, 0.5, 0.75, 1] and images.tolist() == [0, 0.5, 1]
    assert relative_places(documents(5, 3, (0, 2, None)))[1].tolist() == [0, 1.5 / 4, 1]
    assert [each.tolist() for each in relative_places(documents(1, 1))] == [[0.5], [0.5]]
    assert np.array_equal(documents(5, 3).after_sentence, [UNKNOWN_PLACE] * 3)


def test_bins_are_equal_parts_of_the_difference() -> None:
    ends = torch.tensor([0.0, 1.0])
    assert bins_of(ends, ends).tolist() == [[4, 8], [0, 4]]
    assert bins_of(torch.tensor([0.5]), torch.tensor([0.38, 0.4, 0.6, 0.62])).tolist() == [[3, 4, 4, 5]]


def test_weights_are_what_plans_put_into_a_bin_over_what_equal_plans_do() -> None:
    n, m, rng = [3, 2], [2, 4], np.random.default_rng(0)
    plans = rng.random((2, 3, 4)) * [[[1, 1, 0, 0]] * 3, [[1, 1, 1, 1]] * 2 + [[0, 0, 0, 0]]]
    plans /= plans.sum(axis=(1, 2), keepdims=True)
    bins = rng.integers(0, BINS, (2, 3, 4))
    found = masses(torch.from_numpy(plans), torch.from_numpy(bins), Ragged.of(n), Ragged.of(m), torch.tensor([7, 1]))
    by_hand = np.zeros((FOLDS, 2, BINS))
    for number, fold in enumerate((7, 1)):
        for i in range(n[number]):
            for j in range(m[number]):
                by_hand[fold, :, bins[number, i, j]] += [plans[number, i, j], 1 / (n[number] * m[number])]
    assert found.numpy() == pytest.approx(by_hand)

    many, order = 20 * found, Order(log_weights=torch.zeros(BINS), is_tested=False)
    order.learn(many)
    planned, equal = 20 * by_hand.sum(axis=0)
    known = equal > 0
    expected = (planned + equal / 8)[known] / (equal + equal / 8)[known]  # five of 40 documents
    assert order.log_weights.exp().numpy()[known] == pytest.approx(expected)
    assert not order.log_weights[~torch.from_numpy(known)].any()
    order.learn(found)
    assert not order.log_weights.any()  # of two documents


def trained(folder: Path, share: float, *settings: str, knows_links: bool = False) -> LinkModel:
    config: TrainConfig = override(recipe("closed-form"), ["dimensions=8", *settings])
    data = load_training_data(lake_of(folder, share), "synthetic", config.reading)
    context, run = Context(), folder / "-".join(settings)
    return LinkModel.load(train(config, replace(data, knows_links=knows_links), context, run_directory=run).model)


def lake_of(folder: Path, share: float) -> Lake:
    if not (folder / "lake").exists():
        world = lakes.World(noise=NOISE, sentences=SIZES, images=SIZES)
        made = {
            s: lakes.in_order(lakes.make_documents(s, n, world), share)
            for s, n in zip(Split, (120, 20, 60), strict=True)
        }
        lakes.write_lake(folder / "lake", made)
    return Lake.at(str(folder / "lake"))


def test_an_order_is_learnt_where_there_is_one_and_links_get_better(tmp_path: Path) -> None:
    aucs = {}
    for order in ("off", "auto"):
        model = trained(tmp_path, 1.0, f"link.order={order}")
        shown, embedded = embed_split(model, *read_manifest(lake_of(tmp_path, 1.0), "synthetic"), Split.TEST)
        scores = score_documents([each.similarities() for each in embedded], shown.links or ())
        aucs[order] = float(scores.table[:, 0].mean())
        assert ("order" in model.described()["Similarity of a pair"]) == (order == "auto")
    assert aucs["auto"] > aucs["off"] + 2


def test_known_links_leave_order_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    for order in ("auto", "on"):
        steps = trained(tmp_path, 1.0, f"link.order={order}", knows_links=True).steps
        assert steps is not None and steps.order is not None and steps.order.any() == (order == "on")


@pytest.mark.parametrize("name", ["tiny", "closed-form"])
def test_a_file_and_a_data_set_give_the_same_numbers(tmp_path: Path, name: str) -> None:
    config = override(recipe(name), ["dimensions=8", "training.epochs=4", "link.order=on"])
    lake = lake_of(tmp_path, 1.0)
    model = LinkModel.load(lakes.learn(config, lake, tmp_path / name))
    shown, embedded = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
    assert model.steps is not None and model.steps.order is not None and model.steps.order.any()
    for number, (rows, places) in enumerate(zip(shown.sentences, shown.images, strict=True)):
        given = GivenDocument(
            texts=shown.texts[rows],
            image_vectors=shown.image_bank[shown.image_rows[places]],
            sentence_vectors=shown.sentence_vectors[rows],
        )
        [alone] = model.embed(model.read([given]))
        assert alone.similarities() == pytest.approx(embedded[number].similarities(), abs=1e-6)
