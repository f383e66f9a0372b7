from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from training.data.ragged import Ragged
from training.similarity.assignment import Problems, assign
from training.similarity.similarity import edge_counts

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def problems_of(sentences: list[int], images: list[int], k: str = "min") -> Problems:
    """Return every pair's problem."""
    sets, others = (numbers.ravel() for numbers in np.indices((len(sentences), len(images))))
    edges = edge_counts(np.array(sentences)[sets], np.array(images)[others], k)
    return Problems.of(Ragged.of(sentences), Ragged.of(images), sets, others, edges)


def blocks_of(gains: np.ndarray, sentences: list[int], images: list[int]) -> list[np.ndarray]:
    """Return every pair's block of a matrix."""
    rows = np.split(gains, np.cumsum(sentences)[:-1])
    return [block for part in rows for block in np.split(part, np.cumsum(images)[:-1], axis=1)]


def matrices(sentences: list[int], images: list[int], seed: int) -> Iterator[np.ndarray]:
    """Yield matrices without ties, with many, without a positive entry, and of one value."""
    shape, rng = (sum(sentences), sum(images)), np.random.default_rng(seed)
    yield rng.uniform(-1, 1, shape)
    yield rng.integers(-2, 3, shape) / 4
    yield -rng.integers(0, 2, shape).astype(float)
    yield np.full(shape, -0.5)


def sums_of(gains: np.ndarray, problems: Problems, taken: np.ndarray) -> list[float]:
    """Return each problem's sum, having checked that its entries are in its block, in different rows and columns."""
    sums = []
    for problem, entries in enumerate(np.split(taken, np.cumsum(problems.heights)[:-1])):
        top, left = problems.tops[problem], problems.lefts[problem]
        assert (entries[entries < 0] == ~(top * gains.shape[1] + left)).all()
        rows, columns = np.divmod(entries[entries >= 0], gains.shape[1])
        assert len(rows) == len(set(rows.tolist())) == len(set(columns.tolist())) == problems.edges[problem]
        size = int(problems.heights[problem]), int(problems.widths[problem])
        n, m = size[::-1] if problems.is_turned[problem] else size
        assert ((rows >= top) & (rows < top + n) & (columns >= left) & (columns < left + m)).all()
        sums.append(float(gains[rows, columns].sum()))
    return sums


def best_sum(block: np.ndarray, edges: int) -> float:
    """Return the largest sum of exactly `edges` entries, no two in a row or column, by trying them all."""
    n, m = block.shape
    return max(
        float(sum(block[row, column] for row, column in zip(rows, columns, strict=True)))
        for rows in combinations(range(n), edges)
        for columns in permutations(range(m), edges)
    )


@settings(max_examples=25)
@given(
    sentences=SIZES,
    images=SIZES,
    k=st.sampled_from(["min", "half", "0.01"]),
    seed=st.integers(0, 1000),
)
def test_every_block_has_the_largest_sum(*, sentences: list[int], images: list[int], k: str, seed: int) -> None:
    problems = problems_of(sentences, images, k)
    for gains in matrices(sentences, images, seed):
        blocks = blocks_of(gains, sentences, images)
        expected = [best_sum(block, edges) for block, edges in zip(blocks, problems.edges.tolist(), strict=True)]
        assert sums_of(gains, problems, assign(gains, problems)) == pytest.approx(expected)


def test_sizes_at_which_either_solver_is_used() -> None:
    sentences, images = [12, 15, 40, 3], [12, 16, 36, 90]
    problems = problems_of(sentences, images)
    for gains in matrices(sentences, images, seed=0):
        blocks = blocks_of(gains, sentences, images)
        expected = [block[linear_sum_assignment(block, maximize=True)].sum() for block in blocks]
        assert sums_of(gains, problems, assign(gains, problems)) == pytest.approx(expected)


def test_no_problem_has_no_answer() -> None:
    assert assign(np.zeros((0, 3)), problems_of([], [3])).tolist() == []
