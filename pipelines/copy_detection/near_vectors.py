"""Pairs of vectors within a cosine: exact at small scale, through a faiss index of cells above it.

Up to EXACT_BELOW vectors are compared with one another, block by block. Above it, each is compared with those in the
cells nearest to it, so that a few pairs may be missed. Every pair that is reported is measured anew in float64 and
rounded to six places: on which machine it was found does not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.columns import Numbers
from schemas.errors import ConfigError

EXACT_BELOW = 50_000  # vectors: some 10^12 multiplications, a minute on two cores
ROWS_AT_ONCE = 2048
PLACES = 6
_SLACK = 1e-4  # what a cosine in float32 may lack
_POINTS_PER_CELL = 64  # that cells are learned from
_PROBED_SHARE, _LEAST_PROBES = 1 / 16, 16
Vectors = npt.NDArray[np.floating]
Reals = npt.NDArray[np.float64]


def near_pairs(vectors: Vectors, cosine: float, *, exact_below: int = EXACT_BELOW) -> tuple[Numbers, Reals]:
    """Return 2 x P rows, the first before the second, sorted, within a cosine, and their P cosines.

    Args:
        vectors: N x d; a vector of zeros is near to none.
        cosine: least.
        exact_below: number of vectors from which on cells are used.

    Raises:
        ConfigError: there are so many, and faiss is not installed.
    """
    unit = unit_length(vectors)
    found = [np.empty((2, 0), np.int64)]
    for rows, others in _candidates(unit, unit, cosine - _SLACK, exact_below):
        found.append(np.stack([rows, others])[:, rows < others])
    pairs = np.unique(np.concatenate(found, axis=1), axis=1)
    return _measured(vectors, vectors, pairs, cosine)


def nearest_of(
    queries: Vectors, base: Vectors, cosine: float, *, exact_below: int = EXACT_BELOW
) -> tuple[Numbers, Reals]:
    """Return 2 x P rows (of a query, of the nearest in the base within a cosine), a query at most once, and cosines."""
    found = [np.empty((2, 0), np.int64)]
    for rows, others in _candidates(unit_length(queries), unit_length(base), cosine - _SLACK, exact_below):
        found.append(np.stack([rows, others]))
    pairs, cosines = _measured(queries, base, np.concatenate(found, axis=1), cosine)
    order = np.lexsort((pairs[1], -cosines, pairs[0]))
    _, first = np.unique(pairs[0, order], return_index=True)
    return pairs[:, order[first]], cosines[order[first]]


def least_pair(vectors: Vectors) -> tuple[int, int, float]:
    """Return the two rows of N x d vectors, N at least 2, that are least alike, and their cosine."""
    unit, worst = unit_length(vectors), (0, 1, np.inf)
    for start in range(0, len(unit), ROWS_AT_ONCE):
        block = unit[start : start + ROWS_AT_ONCE] @ unit.T
        row, other = divmod(int(block.argmin()), len(unit))
        if block[row, other] < worst[2]:
            worst = (start + row, other, float(block[row, other]))
    first, second = sorted(worst[:2])
    pair = np.array([[first], [second]])
    return first, second, float(_cosines(vectors, vectors, pair)[0])


def unit_length(vectors: Vectors) -> npt.NDArray[np.float32]:
    """Return vectors of length 1, in float32; zeros stay zeros."""
    values = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    unit: npt.NDArray[np.float32] = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return unit


def _candidates(
    queries: npt.NDArray[np.float32], base: npt.NDArray[np.float32], least: float, exact_below: int
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield rows of queries and rows of the base that are about within a cosine."""
    cells = _cells(base) if len(base) >= exact_below else None
    for start in range(0, len(queries), ROWS_AT_ONCE):
        block = queries[start : start + ROWS_AT_ONCE]
        if cells is None:
            rows, others = np.nonzero(block @ base.T >= least) if len(base) else (np.empty(0, int), np.empty(0, int))
        else:
            edges, _, others = cells.range_search(block, least)
            rows = np.repeat(np.arange(len(block)), np.diff(edges).astype(np.int64))
        yield rows + start, others.astype(np.int64)


def _cells(base: npt.NDArray[np.float32]) -> Any:
    """Return a faiss index of vectors in cells."""
    try:
        import faiss
    except ModuleNotFoundError as problem:
        raise ConfigError(
            f"copy_detection: {EXACT_BELOW} images and more are compared through faiss, which is not installed: "
            "pip install 'multilink[retrieval]'"
        ) from problem
    cells = max(1, int(2 * np.sqrt(len(base))))
    quantiser = faiss.IndexFlatIP(base.shape[1])
    made = faiss.IndexIVFFlat(quantiser, base.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    made.cp.max_points_per_centroid = _POINTS_PER_CELL
    made.train(base[:: max(1, len(base) // (_POINTS_PER_CELL * cells))])
    made.add(base)
    made.nprobe = min(cells, max(_LEAST_PROBES, int(_PROBED_SHARE * cells)))
    return made


def _measured(first: Vectors, second: Vectors, pairs: Numbers, cosine: float) -> tuple[Numbers, Reals]:
    cosines = _cosines(first, second, pairs)
    is_near = cosines >= cosine
    return pairs[:, is_near], cosines[is_near]


def _cosines(first: Vectors, second: Vectors, pairs: Numbers) -> Reals:
    """Return the cosines of P pairs of rows."""
    found = np.empty(pairs.shape[1], np.float64)
    for start in range(0, len(found), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        left, right = first[pairs[0, some]].astype(np.float64), second[pairs[1, some]].astype(np.float64)
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        found[some] = (left * right).sum(axis=1) / np.where(lengths > 0, lengths, np.inf)
    return np.round(found, PLACES)
