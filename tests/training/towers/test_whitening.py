"""Whitened inputs against numpy's SVD of the rows themselves, and scipy's matrix power."""

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power

from schemas.errors import BuildError
from training.closed_form.solver import inverse_root
from training.loop.context import Context
from training.towers.whitening import Column, sums_of, whitening_from


def rows(count: int = 200, size: int = 9, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, size)) @ rng.normal(size=(size, size)) + 3).astype(np.float32)


def test_inputs_are_centred_components_over_the_root_of_their_deviation() -> None:
    given = rows()
    found = whitening_from(sums_of(torch.from_numpy(given)), [Column(size=9, components=4)], what="sentences")
    centred = given.astype(np.float64) - given.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    components = (u * s)[:, :4]
    halved = components / np.sqrt(components.std(axis=0))
    halved /= np.sqrt((halved**2).sum(axis=1).mean())
    ours = found.of(torch.from_numpy(given)).numpy()
    assert np.abs(ours) == pytest.approx(np.abs(halved), abs=1e-5)
    assert (ours**2).sum(axis=1).mean() == pytest.approx(1, abs=1e-5)
    assert found.covariance.numpy() == pytest.approx(np.cov(ours.T, bias=True), abs=1e-5)


def test_columns_are_whitened_each_by_itself_and_weighted() -> None:
    first, second = rows(seed=1), rows(size=5, seed=2)
    both = np.hstack([first, second])
    columns = [Column(size=9, components=3), Column(size=5, components=9, weight=0.5)]
    found = whitening_from(sums_of(torch.from_numpy(both)), columns, what="images").of(torch.from_numpy(both)).numpy()
    alone = whitening_from(sums_of(torch.from_numpy(first)), columns[:1], what="images").of(torch.from_numpy(first))
    assert found.shape == (200, 3 + 5)
    assert np.abs(found[:, :3]) == pytest.approx(np.abs(alone.numpy()), abs=1e-5)
    assert (found[:, 3:] ** 2).sum(axis=1).mean() == pytest.approx(0.25, abs=1e-5)


def test_components_that_are_rounding_are_left_out() -> None:
    given = np.repeat(rows(size=3), 2, axis=1)
    assert whitening_from(
        sums_of(torch.from_numpy(given)), [Column(size=6, components=6)], what="images"
    ).components.shape == (6, 3)


def test_a_column_of_equal_vectors_is_left_out_and_one_that_hardly_varies_is_not() -> None:
    level = np.full((1000, 2), 300.7, np.float32)
    little = level + np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32) / 100
    for second, kept in ((level, 3), (little, 5)):
        both = torch.from_numpy(np.hstack([rows(count=1000, size=3), second]))
        columns = [Column(size=3, components=3), Column(size=2, components=2)]
        assert whitening_from(sums_of(both), columns, what="images").components.shape == (5, kept)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((4, 2), np.nan, np.float32), "training images: expected finite numbers"),
        (np.ones((4, 2), np.float32), "training images: expected different ones, found all equal"),
        (np.full((999, 2), 0.3, np.float32), "training images: expected different ones, found all equal"),
        (np.tile(rows(count=1, size=2), (1000, 1)), "training images: expected different ones, found all equal"),
    ],
)
def test_vectors_that_say_nothing_are_one_line(given: np.ndarray, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        whitening_from(sums_of(torch.from_numpy(given)), [Column(size=2, components=2)], what="images")


def test_the_inverse_root_in_the_uncorrelated_basis_is_scipy_s_power() -> None:
    both = torch.from_numpy(np.hstack([rows(seed=1), rows(size=5, seed=2)]))
    columns = [Column(size=9, components=3), Column(size=5, components=5)]
    found = whitening_from(sums_of(both), columns, what="images")
    inputs = found.uncorrelated(Context())
    wanted = found.covariance + 2.0 * found.covariance.diagonal().mean() * torch.eye(8)
    power = torch.from_numpy(fractional_matrix_power(wanted.numpy(), -0.5))
    ours = inputs.components * inverse_root(inputs.covariance.diagonal(), 2.0) @ inputs.components.T
    assert ours.numpy() == pytest.approx((found.components @ power @ found.components.T).numpy(), rel=1e-8, abs=1e-10)
    covariance = np.cov(inputs.of(both).numpy().T, bias=True)
    assert covariance == pytest.approx(inputs.covariance.numpy(), abs=1e-5)
