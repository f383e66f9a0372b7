"""AP: maximum-weight matchings of sentences and images (Hessel 2019, 3.2), for one matrix or for all pairs of a batch.

Plain numpy on detached values: which entries are selected is not differentiated, the entries are. Every matching is
exact. One of `min(n, m)` edges is a linear assignment; one of fewer, `k`, is too, with places to stay out:

                 m images     n - k places       n <= m; the transpose otherwise. Staying out gains more than
    n sentences  M            bonus              any edge, so every place is taken and k sentences are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from lapjv import lapjv
from scipy.optimize import linear_sum_assignment

from training.config import Matching
from training.data.documents import Int64

Matrix = npt.NDArray[np.floating[Any]]
SMALLEST_FOR_LAPJV = 12
SLACK_FOR_LAPJV = 8


@dataclass(frozen=True, slots=True)
class Edges:
    """Selected entries of a matrix: `rows[e]` goes with `columns[e]`; for a batch, `pairs[e]` is their pair of sets."""

    rows: Int64
    columns: Int64
    pairs: Int64


def edge_counts(sentences: npt.ArrayLike, images: npt.ArrayLike, k: str) -> Int64:
    """Return how many edges or maxima count for sets of the given sizes (arrays that broadcast).

    `min`: min(n, m); `half`: half of it rounded up; a fraction: that share of it rounded up; a count: at most min(n,
    m).
    """
    smaller: Int64 = np.minimum(np.asarray(sentences, np.int64), np.asarray(images, np.int64))
    if k == "min":
        return smaller
    if k == "half":
        return (smaller + 1) // 2
    value = float(k)
    if value >= 1:
        return np.minimum(smaller, int(value))
    return np.ceil(np.round(value * smaller, 9)).astype(np.int64)


def match(weights: Matrix, k: int, matching: Matching) -> tuple[Int64, Int64]:
    """Return rows and columns of the maximum-weight matching of an n x m matrix.

    Args:
        weights: n x m, finite.
        k: number of edges, at most min(n, m).
        matching: `exact`: exactly k edges; `at_most`: those of the best matching of at most k edges, which is the
            best of exactly k over `max(weights, 0)` without the edges that were negative.
    """
    offsets = [np.array([0, size]) for size in weights.shape]
    edges = match_batch(weights, *offsets, k=str(k), matching=matching)
    return edges.rows, edges.columns


def match_batch(weights: Matrix, text_offsets: Int64, image_offsets: Int64, *, k: str, matching: Matching) -> Edges:
    """Return the matching of every block of an N x M matrix: sentence set `i` (rows) against image set `j` (columns).

    Args:
        weights: N x M, all sentences against all images.
        text_offsets: B + 1 bounds of the sentence sets.
        image_offsets: C + 1 bounds of the image sets.
        k: see `edge_counts`.
        matching: see `match`.

    Returns:
        Edges with rows and columns into `weights`; pair `(i, j)` is number `i * C + j`.
    """
    shape = len(text_offsets) - 1, len(image_offsets) - 1
    sets, others = (numbers.ravel() for numbers in np.indices(shape))
    return _match_pairs(weights, text_offsets, image_offsets, sets, others, k=k, matching=matching)


def match_own(weights: Matrix, text_offsets: Int64, image_offsets: Int64, *, k: str, matching: Matching) -> Edges:
    """Return the matching of the diagonal blocks alone, sentence set `i` against image set `i`: pair number `i`.

    Arguments as of `match_batch`.
    """
    sets = np.arange(len(text_offsets) - 1)
    return _match_pairs(weights, text_offsets, image_offsets, sets, sets, k=k, matching=matching)


def _match_pairs(
    weights: Matrix,
    text_offsets: Int64,
    image_offsets: Int64,
    sets: Int64,
    others: Int64,
    *,
    k: str,
    matching: Matching,
) -> Edges:
    """Return the matchings of sentence set `sets[p]` against image set `others[p]`, for every pair `p`."""
    gains = weights.astype(np.float64)
    if matching is Matching.AT_MOST:
        gains = np.maximum(gains, 0)
    counts = edge_counts(np.diff(text_offsets)[sets], np.diff(image_offsets)[others], k)
    rows, columns = list(pairwise(text_offsets.tolist())), list(pairwise(image_offsets.tolist()))
    found: list[tuple[Int64, Int64]] = []
    for i, j, count in zip(sets.tolist(), others.tolist(), counts.tolist(), strict=True):
        (top, bottom), (left, right) = rows[i], columns[j]
        found.append(_solve(gains[top:bottom, left:right], count))
    pairs = np.repeat(np.arange(len(sets)), [len(chosen) for chosen, _ in found])
    edges = Edges(
        rows=np.concatenate([chosen for chosen, _ in found]) + text_offsets[sets[pairs]],
        columns=np.concatenate([chosen for _, chosen in found]) + image_offsets[others[pairs]],
        pairs=pairs,
    )
    if matching is Matching.EXACT:
        return edges
    kept = weights[edges.rows, edges.columns] >= 0
    return Edges(edges.rows[kept], edges.columns[kept], edges.pairs[kept])


def _solve(gains: Matrix, k: int) -> tuple[Int64, Int64]:
    """Return the best matching of exactly k edges, by the solver measured faster for the shape.

    scipy takes rectangles as they are; lapjv needs a square, and wins on large ones that are nearly square.
    """
    n, m = gains.shape
    smaller, larger = (n, m) if n <= m else (m, n)
    if k < smaller:
        return _solve_fewer(gains, k)
    if larger >= SMALLEST_FOR_LAPJV and larger - smaller <= larger // SLACK_FOR_LAPJV:
        return _solve_square(gains, larger)
    rows, columns = linear_sum_assignment(gains, maximize=True)
    return rows, columns


def _solve_square(gains: Matrix, size: int) -> tuple[Int64, Int64]:
    n, m = gains.shape
    cost = np.zeros((size, size))
    np.negative(gains, out=cost[:n, :m])
    columns = lapjv(cost)[0][:n].astype(np.int64)
    kept = np.flatnonzero(columns < m)
    return kept, columns[kept]


def _solve_fewer(gains: Matrix, k: int) -> tuple[Int64, Int64]:
    """Return the best matching of exactly k < min(n, m) edges, by the rectangle drawn above."""
    n, m = gains.shape
    places = min(n, m) - k
    shape = (n, m + places) if n <= m else (n + places, m)
    padded = np.full(shape, 1.0 + float(np.abs(gains).max()))
    padded[:n, :m] = gains
    rows, columns = linear_sum_assignment(padded, maximize=True)
    kept = (rows < n) & (columns < m)
    return rows[kept], columns[kept]
