"""Soft plans and the order they learn against loops over single documents; links that get better where there is one."""

from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.closed_form.plans import BINS, FOLDS, Order, bins_of, masses, pair_weights, relative_places, soft_plans
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

SIZES = [(3, 3), (5, 2), (1, 4), (1, 1), (2, 6)]


def scores(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size) for size in SIZES]


def padded(matrices: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n, m = (max(matrix.shape[axis] for matrix in matrices) for axis in (0, 1))
    block = np.full((len(matrices), n, m), -np.inf)
    for row, matrix in enumerate(matrices):
        block[row, : matrix.shape[0], : matrix.shape[1]] = matrix
    return torch.from_numpy(block), *(torch.tensor([matrix.shape[axis] for matrix in matrices]) for axis in (0, 1))


def by_hand(matrix: np.ndarray, rounds: int) -> np.ndarray:
    """Scale rows and columns of one document's positive matrix, a partner added to the shorter side."""
    n, m = matrix.shape
    kernel, rows, columns = np.exp(matrix), np.ones(n), np.ones(m)
    if n > m:
        kernel, columns = np.hstack([kernel, np.ones((n, 1))]), np.append(columns, n - m)
    if m > n:
        kernel, rows = np.vstack([kernel, np.ones((1, m))]), np.append(rows, m - n)
    for _ in range(rounds):
        kernel *= (rows / kernel.sum(axis=1))[:, None]
        kernel *= (columns / kernel.sum(axis=0))[None, :]
    return kernel[:n, :m]


@pytest.mark.parametrize("rounds", [1, 15])
def test_plans_of_any_shape_by_hand(rounds: int) -> None:
    matrices = scores()
    plans = soft_plans(*padded(matrices), rounds=rounds).exp().numpy()
    for plan, matrix in zip(plans, matrices, strict=True):
        n, m = matrix.shape
        assert plan[:n, :m] == pytest.approx(by_hand(matrix, rounds), rel=1e-10)
        assert plan[n:].sum() == plan[:, m:].sum() == 0


def test_a_plan_sums_to_the_smaller_number_and_no_row_or_column_to_more_than_one() -> None:
    matrices = scores(1)
    for plan, matrix in zip(soft_plans(*padded(matrices), rounds=500).exp().numpy(), matrices, strict=True):
        assert plan.sum() == pytest.approx(min(matrix.shape))
        assert plan.sum(axis=0).max() < 1 + 1e-9
        assert plan.sum(axis=1).max() < 1 + 1e-9


def test_a_sharp_plan_is_the_best_assignment() -> None:
    matrices = scores(2)
    for plan, matrix in zip(
        soft_plans(*padded([200 * each for each in matrices]), rounds=3000).exp(), matrices, strict=True
    ):
        expected = np.zeros(plan.shape)
        expected[linear_sum_assignment(matrix, maximize=True)] = 1
        assert plan.numpy() == pytest.approx(expected, abs=1e-3)


def test_weights_of_a_document_sum_to_one_and_are_alike_without_a_sharpness() -> None:
    matrices = scores(3)
    block, n, m = padded(matrices)
    sets = Ragged.of(n.tolist()), Ragged.of(m.tolist())
    for weights, (rows, columns) in zip(pair_weights(block, *sets, None).numpy(), SIZES, strict=True):
        assert weights[:rows, :columns] == pytest.approx(np.full((rows, columns), 1 / (rows * columns)))
    sharp = pair_weights(block, *sets, 3.0).numpy()
    assert sharp.sum(axis=(1, 2)) == pytest.approx(np.ones(len(SIZES)))
    expected = by_hand(3.0 * matrices[1], 15)
    assert sharp[1, :5, :2] == pytest.approx(expected / expected.sum())


NOISE, COUNTS = 5.0, (6, 9)


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


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Documents whose pictures stand in the order of their sentences."""
    world = lakes.World(noise=NOISE, sentences=COUNTS, images=COUNTS)
    made = {split: lakes.in_order(each, 1.0) for split, each in lakes.splits(world, train=120, val=20, test=60).items()}
    return lakes.write_lake(tmp_path_factory.mktemp("order") / "lake", made)


def trained(lake: Lake, folder: Path, order: str, *, knows_links: bool = False) -> LinkModel:
    config: TrainConfig = override(recipe("closed-form"), ["dimensions=8", f"link.order={order}"])
    data = replace(load_training_data(lake, "synthetic", config.reading), knows_links=knows_links)
    return LinkModel.load(train(config, data, Context(), run_directory=folder / order).model)


def test_an_order_is_learnt_where_there_is_one_and_links_get_better(lake: Lake, tmp_path: Path) -> None:
    aucs = {}
    for order in ("off", "auto"):
        model = trained(lake, tmp_path, order)
        shown, embedded = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
        scores = score_documents([each.similarities() for each in embedded], shown.links or ())
        aucs[order] = float(scores.table[:, 0].mean())
        assert ("order" in model.described()["Similarity of a pair"]) == (order == "auto")
    assert aucs["auto"] > aucs["off"] + 2


def test_known_links_leave_order_out_unless_it_is_asked_for(lake: Lake, tmp_path: Path) -> None:
    for order in ("auto", "on"):
        steps = trained(lake, tmp_path, order, knows_links=True).steps
        assert steps is not None and steps.order is not None and steps.order.any() == (order == "on")


@pytest.mark.parametrize("name", ["tiny", "closed-form"])
def test_a_file_and_a_data_set_give_the_same_numbers(lake: Lake, tmp_path: Path, name: str) -> None:
    config = override(recipe(name), ["dimensions=8", "training.epochs=4", "link.order=on"])
    model = LinkModel.load(lakes.learn(config, lake, tmp_path / name))
    shown, embedded = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
    assert model.steps is not None and model.steps.order is not None and model.steps.order.any()
    for given, expected in zip(lakes.given_documents(shown), embedded, strict=True):
        [alone] = model.embed(model.read([given]))
        assert alone.similarities() == pytest.approx(expected.similarities(), abs=1e-6)
