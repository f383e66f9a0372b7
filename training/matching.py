"""AP: maximum-weight matchings of sentences and images (Hessel 2019, 3.2), for one matrix or for all pairs of a batch.

Plain numpy on detached values: which entries are selected is not differentiated, the entries are. Every matching is
exact. A matching of at most `min(n, m)` edges is a linear assignment; fewer edges, `k`, are one on a larger square:

                 m images      n - k dummies      Each of the m - k dummy rows must take an image and each of the
    n sentences  -M            0                  n - k dummy columns a sentence (their corner is forbidden), so
    m - k dummies 0            forbidden          exactly k sentences are left for exactly k images.
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
    """Return rows and columns of the maximum-weight matching of an n x m matrix, in row order.

    Args:
        weights: n x m, finite.
        k: number of edges, at most min(n, m).
        matching: `exact`: exactly k edges; `at_most`: those of the best matching of at most k edges, which is the
            best of exactly k over `max(weights, 0)` without the edges that were negative.
    """
    gains = np.maximum(weights, 0) if matching is Matching.AT_MOST else weights
    rows, columns = _assign(gains) if k == min(weights.shape) else _assign_exactly(gains, k)
    if matching is Matching.AT_MOST:
        keep = weights[rows, columns] >= 0
        return rows[keep], columns[keep]
    return rows, columns


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
    counts = edge_counts(np.diff(text_offsets)[:, None], np.diff(image_offsets)[None, :], k)
    image_sets = len(image_offsets) - 1
    found: list[tuple[Int64, Int64]] = []
    for i, (top, bottom) in enumerate(pairwise(text_offsets)):
        band = np.ascontiguousarray(weights[top:bottom], dtype=np.float64)
        for j, (left, right) in enumerate(pairwise(image_offsets)):
            rows, columns = match(band[:, left:right], int(counts[i, j]), matching)
            found.append((rows + top, columns + left))
    sizes = [len(rows) for rows, _ in found]
    return Edges(
        rows=np.concatenate([rows for rows, _ in found]),
        columns=np.concatenate([columns for _, columns in found]),
        pairs=np.repeat(np.arange((len(text_offsets) - 1) * image_sets), sizes),
    )


def _assign(gains: Matrix) -> tuple[Int64, Int64]:
    """Return the best assignment of min(n, m) edges; the solver is the one measured faster for the shape.

    scipy takes rectangles as they are; lapjv needs a square, and wins on large ones that are nearly square
    (`benchmarks/similarity.py`).
    """
    n, m = gains.shape
    larger = max(n, m)
    if larger < SMALLEST_FOR_LAPJV or larger - min(n, m) > larger // SLACK_FOR_LAPJV:
        rows, columns = linear_sum_assignment(gains, maximize=True)
        return rows, columns
    square = np.zeros((larger, larger))
    square[:n, :m] = -gains
    columns = lapjv(square)[0][:n].astype(np.int64)
    kept = np.flatnonzero(columns < m)
    return kept, columns[kept]


def _assign_exactly(gains: Matrix, k: int) -> tuple[Int64, Int64]:
    """Return the best matching of exactly k < min(n, m) edges, by the square drawn above."""
    n, m = gains.shape
    size = n + m - k
    forbidden = 1.0 + 2.0 * size * float(np.abs(gains).max())
    cost = np.zeros((size, size))
    cost[:n, :m] = -gains
    cost[n:, m:] = forbidden
    rows, columns = linear_sum_assignment(cost)
    kept = (rows < n) & (columns < m)
    return rows[kept], columns[kept]
