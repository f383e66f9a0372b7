from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lapjv import lapjv
from scipy.optimize import linear_sum_assignment

from training.data.ragged import Ragged
from training.similarity.assignment import Matching, match, match_pairs, predicted_pairs
from training.similarity.similarity import edge_counts

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 5))
WEIGHTS = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(-8, 8).map(lambda x: x / 8)))


def best_sum(weights: np.ndarray, edges: int) -> float:
    """The largest sum of exactly `edges` entries, no two in a row or column, by trying them all."""
    n, m = weights.shape
    return max(
        sum(weights[row, column] for row, column in zip(rows, columns, strict=True))
        for rows in combinations(range(n), edges)
        for columns in permutations(range(m), edges)
    )


@given(WEIGHTS, st.data())
def test_exact_matching_has_the_largest_sum_of_exactly_k_edges(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(weights.shape)))
    rows, columns = match(weights, k, Matching.EXACT)
    assert len(set(rows)) == len(set(columns)) == len(rows) == k
    assert weights[rows, columns].sum() == pytest.approx(best_sum(weights, k))


@given(WEIGHTS, st.data())
def test_at_most_matching_has_the_largest_sum_of_up_to_k_edges(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(weights.shape)))
    rows, columns = match(weights, k, Matching.AT_MOST)
    assert len(set(rows)) == len(set(columns)) == len(rows) <= k
    assert (weights[rows, columns] >= 0).all()
    assert weights[rows, columns].sum() == pytest.approx(max(best_sum(weights, edges) for edges in range(k + 1)))


@pytest.mark.parametrize("size", [12, 33, 64])
@pytest.mark.parametrize("decimals", [1, 9])
def test_a_matching_is_as_good_as_that_of_the_solver_of_hessel_et_al(size: int, decimals: int) -> None:
    weights = np.random.default_rng(0).uniform(-1, 1, (size, size)).round(decimals)
    rows, columns = match(weights, size, Matching.EXACT)
    theirs = lapjv(-weights, force_doubles=True)[0]
    assert len(set(rows)) == len(set(columns)) == size
    assert weights[rows, columns].sum() == pytest.approx(weights[np.arange(size), theirs].sum())


RANDOM = np.random.default_rng(0)
ODD = {
    "equal": np.full((40, 44), 0.3),
    "of rank one": np.outer(RANDOM.random(100), RANDOM.random(100)),
    "of many orders of magnitude": 10.0 ** RANDOM.uniform(-18, 18, (40, 40)) * RANDOM.choice([-1, 1], (40, 40)),
    "huge": RANDOM.choice([1e300, -1e300, 0, 1e-300], (15, 17)),
    "denormal": RANDOM.integers(0, 5, (16, 16)) * 5e-324,
}


@pytest.mark.parametrize("kind", ODD)
def test_a_matching_of_odd_weights_ends_with_the_edges_that_were_asked_for(kind: str) -> None:
    weights = ODD[kind]
    most = min(weights.shape)
    for edges in (most, most // 2):
        rows, columns = match(weights, edges, Matching.EXACT)
        assert len(set(rows)) == len(set(columns)) == len(rows) == edges
    best = weights[linear_sum_assignment(weights, maximize=True)].sum()
    rows, columns = match(weights, most, Matching.EXACT)
    assert weights[rows, columns].sum() >= best - 1e-9 * abs(weights).max()


def test_greedy_choice_is_not_optimal() -> None:
    weights = np.array([[0.9, 0.8], [0.8, 0.1]])
    rows, columns = match(weights, 2, Matching.EXACT)
    assert list(zip(rows, columns, strict=True)) == [(0, 1), (1, 0)]


def test_at_most_leaves_out_what_is_below_zero_and_keeps_zero() -> None:
    """The number of edges is what the sum is divided by."""
    rows, columns = match(np.array([[0.0, -1.0, -1.0], [-1.0, -0.5, -1.0], [-1.0, -1.0, 0.5]]), 3, "at_most")
    assert (rows.tolist(), columns.tolist()) == ([0, 2], [0, 2])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_a_document_without_sentences_or_images_has_no_links(shape: tuple[int, int]) -> None:
    rows, columns = predicted_pairs(np.zeros(shape))
    assert rows.tolist() == columns.tolist() == [] and rows.dtype == columns.dtype == np.int64


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("others", "expected"), [([0.2, 0.3, 0.1], [1, 2]), ([-0.2, -0.3, 0.1], [0, 3])])
def test_what_is_not_finite_counts_as_zero(odd: float, others: list[float], expected: list[int]) -> None:
    weights = torch.tensor([odd, *others]).reshape(2, 2)
    for matrix in (weights, weights.double(), weights.bfloat16()):
        edges = match_pairs(matrix, [(slice(0, 2), slice(0, 2))], np.array([2]), Matching.EXACT)
        assert edges.entries.tolist() == expected


@settings(max_examples=25)
@given(
    sizes=st.tuples(*[st.lists(st.integers(1, 5), min_size=1, max_size=4)] * 2),
    k=st.sampled_from(["min", "half", "0.01"]),
    matching=st.sampled_from(Matching),
    seed=st.integers(0, 1000),
)
def test_each_pair_of_a_batch_is_matched_as_its_block_is(
    sizes: tuple[list[int], list[int]], k: str, matching: Matching, seed: int
) -> None:
    sentences, images = map(Ragged.of, sizes)
    weights = np.random.default_rng(seed).uniform(-1, 1, (sentences.total, images.total))
    pairs = list(product(sentences, images))
    counts = edge_counts(sentences.counts[:, None], images.counts, k).ravel()
    found = match_pairs(torch.from_numpy(weights), pairs, counts, matching)
    for number, (block, count) in enumerate(zip(pairs, counts.tolist(), strict=True)):
        rows, columns = match(weights[block], count, matching)
        expected = (block[0].start + rows) * images.total + block[1].start + columns
        assert sorted(found.entries[found.pairs == number].tolist()) == expected.tolist()


@pytest.mark.parametrize(
    ("k", "n", "m", "expected"),
    [
        ("min", 5, 3, 3),
        ("half", 5, 3, 2),
        ("half", 4, 4, 2),
        ("half", 1, 9, 1),
        ("0.25", 8, 9, 2),
        ("0.3", 10, 10, 3),
        ("0.01", 5, 5, 1),
        ("2", 5, 3, 2),
        ("9", 5, 3, 3),
        ("1", 5, 3, 1),
    ],
)
def test_edge_counts(k: str, n: int, m: int, expected: int) -> None:
    assert edge_counts(n, m, k) == expected
