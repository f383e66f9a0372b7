"""Pairs within a cosine are those that a plain loop finds; cells miss few of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.copy_detection.near_vectors import least_pair, near_pairs, nearest_of


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    lengths = float(np.linalg.norm(first.astype(float)) * np.linalg.norm(second.astype(float)))
    return float(first.astype(float) @ second.astype(float)) / lengths if lengths else 0.0


def clouds(count: int, copies: int, seed: int, spread: float = 0.3) -> np.ndarray:
    """Return `count` directions, each with some copies near it, shuffled."""
    numbers = np.random.default_rng(seed)
    centres = numbers.normal(size=(count, 32))
    rows = np.repeat(centres, copies, axis=0)
    rows = rows + spread * numbers.normal(size=rows.shape)
    return numbers.permutation(rows).astype(np.float16)


@given(st.integers(0, 10_000), st.floats(0.3, 0.99))
def test_pairs_are_those_of_a_loop(seed: int, least: float) -> None:
    vectors = clouds(5, 3, seed)
    vectors[0] = 0
    wanted = {
        (a, b): cosine(vectors[a], vectors[b])
        for a in range(len(vectors))
        for b in range(a + 1, len(vectors))
        if round(cosine(vectors[a], vectors[b]), 6) >= least
    }
    pairs, cosines = near_pairs(vectors, least)
    assert [tuple(pair) for pair in pairs.T.tolist()] == sorted(wanted)
    assert cosines.tolist() == pytest.approx([wanted[key] for key in sorted(wanted)], abs=1e-6)


def test_cells_find_nearly_all_pairs_and_no_others() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    vectors = clouds(1500, 2, 0)
    exact, known = near_pairs(vectors, 0.8)
    found, cosines = near_pairs(vectors, 0.8, exact_below=100)
    told = dict(zip(map(tuple, exact.T.tolist()), known.tolist(), strict=True))
    pairs = dict(zip(map(tuple, found.T.tolist()), cosines.tolist(), strict=True))
    assert len(told) > 1000
    assert pairs.items() <= told.items()
    assert len(pairs) > 0.97 * len(told)


@given(st.integers(0, 10_000))
def test_the_nearest_of_another_set_is_the_most_similar_one(seed: int) -> None:
    queries, base = clouds(4, 2, seed), clouds(4, 2, seed + 1)
    base[3] = queries[2]
    (rows, others), cosines = nearest_of(queries, base, 0.2)
    best = {q: max(round(cosine(queries[q], each), 6) for each in base) for q in range(len(queries))}
    assert rows.tolist() == [q for q, found in best.items() if found >= 0.2]
    assert cosines.tolist() == pytest.approx([best[q] for q in rows.tolist()], abs=2e-6)
    assert others[rows.tolist().index(2)] == 3
    assert nearest_of(queries, base[:0], 0.2)[0].shape == (2, 0)


def test_the_least_alike_pair_is_found_in_blocks() -> None:
    vectors = clouds(1, 40, 3, spread=1.0)
    first, second, least = least_pair(vectors)
    every = {(a, b): cosine(vectors[a], vectors[b]) for a in range(40) for b in range(a + 1, 40)}
    assert (first, second) == min(every, key=every.__getitem__)
    assert least == pytest.approx(min(every.values()), abs=1e-6)
