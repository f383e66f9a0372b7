"""Soft plans against loops over single documents, and their limits against scipy's assignment."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from training.closed_form.plans import pair_weights, soft_plans
from training.data.ragged import Ragged

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
