"""Near vectors are those that a plain loop finds; cells miss few of them, the same ones on every machine."""

import hashlib
import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.copy_detection import vectors as under_test
from pipelines.copy_detection.vectors import (
    PROBES,
    Points,
    centres_of,
    cosines_of,
    in_cells,
    near_points,
    points_of,
    sample,
)
from pipelines.dedupe.duplicates import cut_crowded, find_neighbours, merge_clusters
from pipelines.partitions.columns import from_hex


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    lengths = float(np.linalg.norm(first.astype(float)) * np.linalg.norm(second.astype(float)))
    return float(first.astype(float) @ second.astype(float)) / lengths if lengths else 0.0


def clouds(count: int, copies: int, seed: int, spread: float = 0.3) -> np.ndarray:
    """Return `count` directions, each with some copies near it, shuffled."""
    numbers = np.random.default_rng(seed)
    rows = np.repeat(numbers.normal(size=(count, 33)), copies, axis=0)
    rows = rows + spread * numbers.normal(size=rows.shape)
    return numbers.permutation(rows).astype(np.float16)


def pointed(vectors: np.ndarray, name: str = "") -> Points:
    """Return images whose hashes are in no order, with these vectors."""
    return points_of(
        from_hex([hashlib.sha256(f"{name}{n}".encode()).hexdigest() for n in range(len(vectors))]), vectors
    )


def matrix(points: Points) -> np.ndarray:
    return np.stack([np.frombuffer(row.ljust(points.vectors.itemsize, b"\0"), np.float16) for row in points.vectors])


def pairs_of(points: Points, least: float) -> dict[frozenset[bytes], float]:
    """Return pairs of images and their cosines."""
    found = {}
    for (first, second), distances in near_points(points, least):
        images = zip(points.images[first].tolist(), points.images[second].tolist(), strict=True)
        found |= dict(zip(map(frozenset, images), cosines_of(distances).tolist(), strict=True))
    return found


def looped(points: Points, least: float) -> dict[frozenset[bytes], float]:
    rows, names = matrix(points), points.images.tolist()
    every = {(a, b): cosine(rows[a], rows[b]) for a, b in combinations(range(len(rows)), 2)}
    return {frozenset((names[a], names[b])): value for (a, b), value in every.items() if round(value, 6) >= least}


@given(st.integers(0, 10_000), st.floats(0.3, 0.99))
def test_pairs_are_those_of_a_loop(seed: int, least: float) -> None:
    vectors = clouds(5, 3, seed)
    vectors[0] = 0
    vectors[1] = vectors[2]
    points = pointed(vectors)
    wanted = looped(points, least)
    found = pairs_of(points, least)
    assert found.keys() == wanted.keys()
    assert list(found.values()) == pytest.approx([wanted[pair] for pair in found], abs=1e-6)


def test_an_image_is_in_a_cell_once_and_rather_a_base() -> None:
    points = pointed(clouds(3, 1, 0))
    query = replace(points.take([0]), bases=np.zeros(1, np.int64))
    joined = Points.concatenate([query, points, points.take([1, 2])])
    assert len(joined) == 3 and joined.bases.tolist() == [1, 1, 1]


@pytest.mark.parametrize("blocks", [1, 3, 7, 1000])
def test_a_matrix_is_looked_at_in_blocks(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points = pointed(clouds(6, 4, 1))
    expected = looped(points, 0.5)
    monkeypatch.setattr(under_test, "_ROWS_AT_ONCE", blocks)
    assert pairs_of(points, 0.5).keys() == expected.keys()


@pytest.mark.parametrize(("spread", "least"), [(0.3, 0.8), (0.2, 0.9)])
def test_cells_find_nearly_all_pairs_and_no_others(spread: float, least: float) -> None:
    points = pointed(clouds(1500, 2, 0, spread))
    exact = pairs_of(points, least)
    centres = centres_of(sample(points, 120 / 3000))
    cells = in_cells(points, centres)
    found = pairs_of(cells, least)
    assert len(exact) > 1000 and 80 < len(centres) < 160
    assert found.items() <= exact.items()
    assert len(found) > 0.98 * len(exact)
    sizes = np.bincount(cells.keys[cells.bases == 1], minlength=len(centres))
    assert len(cells) == PROBES * len(points) and sizes.sum() == len(points)
    assert sizes[cells.keys].sum() < 0.12 * len(points) ** 2  # compared, of all with all


def test_cells_do_not_depend_on_the_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of whole numbers are exact: another order of columns, as of another processor, gives the same sums."""
    values = clouds(400, 1, 5)
    values = np.concatenate([values] * 40, axis=1)  # 1,320 dimensions
    points, order = pointed(values), np.random.default_rng(0).permutation(1320)
    other = pointed(values[:, order])
    assert other.images.tolist() == points.images.tolist()
    cells = [in_cells(each, centres_of(sample(each, 0.1))) for each in (points, other)]
    np.testing.assert_array_equal(cells[0].keys, cells[1].keys)
    grids = [under_test._on_grid(each) for each in (points, other)]
    exact = grids[0].astype(np.int64) @ grids[0].astype(np.int64).T
    np.testing.assert_array_equal(grids[0] @ grids[0].T, exact)
    np.testing.assert_array_equal(grids[1] @ grids[1].T, exact)


def test_a_sample_follows_from_hashes() -> None:
    points = pointed(clouds(2000, 1, 2))
    some, more = sample(points, 0.1), sample(points, 0.2)
    assert {*some.images.tolist()} < {*more.images.tolist()}
    assert 150 < len(some) < 250 and len(sample(points, 2.0)) == 2000 and len(sample(points, 0.0)) == 0


def test_many_alike_pictures_take_no_memory_of_their_pairs() -> None:
    """4,000 pictures of one thing have 8 million pairs; an image keeps its nearest and its cluster."""
    count = 4000
    points = pointed(clouds(1, count, 3, spread=0.1))
    tracemalloc.start()
    parts = [find_neighbours(some, partial(near_points, cosine=0.75)) for some in cut_crowded(points, 2048)]
    merged = merge_clusters(clusters for _, clusters in parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(merged) == count and {*merged.clusters.tolist()} == {min(points.images.tolist())}
    assert peak < 150e6
