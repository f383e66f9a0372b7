"""AP: maximum-weight matchings of sentences and images (Hessel 2019, 3.2), of one matrix or of pairs of sets.

Every matching is an assignment problem, solved exactly for a matrix that is turned so that it has at most as many rows
as columns. Each row takes one column of its own; where fewer edges than rows are wanted, the others take places to stay
out. Staying out gains more than any entry, so every place is taken and exactly `k` rows take an entry:

                 width     height - k places
    height rows  gains     bonus

A matrix on a GPU is fetched: assignments are solved on the host. Which entries are selected is not differentiated, the
entries are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from training.data.ragged import Float64, Floats, Int64, require_finite, to_device


class Matching(StrEnum):
    """`exact` selects exactly k edges (H's code); `at_most` leaves out an edge that would lower the sum."""

    EXACT = "exact"
    AT_MOST = "at_most"


@dataclass(frozen=True, slots=True)
class Edges:
    """E selected edges of P pairs of sets, pair by pair; on the matrix's device.

    Attributes:
        entries: E positions in the matrix laid out row by row.
        pairs: E numbers of the pairs of sets.
    """

    entries: Tensor
    pairs: Tensor


def match(weights: Floats, k: int, matching: Matching | str) -> tuple[Int64, Int64]:
    """Return rows and columns of the maximum-weight matching of an n x m matrix, by row.

    Args:
        weights: n x m, finite.
        k: number of edges, at most min(n, m).
        matching: `exact`: exactly k edges; `at_most`: those of the best matching of at most k edges, which is the
            best of exactly k over `max(weights, 0)` without the edges that were negative.

    Raises:
        UsageError: a weight is not finite.

    >>> match(np.array([[0.9, 0.8], [0.7, 0.1]]), 2, Matching.EXACT)
    (array([0, 1]), array([1, 0]))
    """
    require_finite(weights, "similarities of a document")
    rows, columns = _edges(-weights.astype(np.float64), k, Matching(matching))
    order = np.argsort(rows)
    return rows[order], columns[order]


def predicted_pairs(similarities: Floats) -> tuple[Int64, Int64]:
    """Return rows and columns of the links that an n x m matrix predicts, by row.

    As in figure 4 of Hessel 2019, they are the matching that AP sums over, of at most min(n, m) edges: each sentence
    and each image has at most one link, and no link has a similarity below zero. Raises as `match`.

    >>> predicted_pairs(np.array([[0.9, 0.8], [0.7, 0.1], [-0.5, -0.2]]))
    (array([0, 1]), array([1, 0]))
    """
    return match(similarities, min(similarities.shape), Matching.AT_MOST)


def match_pairs(weights: Tensor, pairs: Iterable[tuple[slice, slice]], edges: Int64, matching: Matching | str) -> Edges:
    """Return the matchings of P blocks of an N x M matrix: rows of a sentence set, columns of an image set.

    Args:
        weights: N x M, all sentences against all images. What is not finite counts as 0 in the choice of entries; the
            step's own check (`training.loop.step`) then says so.
        pairs: P rows and columns.
        edges: P, how many edges each matching has; at most as many as its smaller set has members.
        matching: see `match`.

    >>> found = match_pairs(torch.eye(2), [(slice(0, 2), slice(0, 2))], np.array([2]), "exact")
    >>> found.entries.tolist(), found.pairs.tolist()
    ([0, 3], [0, 0])
    """
    finite = torch.nan_to_num(weights.detach(), posinf=0.0, neginf=0.0)
    costs, matching = -finite.double().cpu().numpy(), Matching(matching)
    blocks = list(pairs)
    edges_of = [_edges(costs[block], k, matching) for block, k in zip(blocks, edges.tolist(), strict=True)]
    owners = np.repeat(np.arange(len(blocks)), [len(rows) for rows, _ in edges_of])
    firsts = np.array([texts.start * weights.shape[1] + images.start for texts, images in blocks], np.int64)
    rows, columns = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in zip(*edges_of, strict=True))
    positions = firsts[owners] + rows * weights.shape[1] + columns
    return Edges(to_device(positions, weights.device), to_device(owners, weights.device))


def _edges(costs: Float64, k: int, matching: Matching) -> tuple[Int64, Int64]:
    """Return rows and columns of the matching of the lowest cost, in the order of the smaller side."""
    if costs.shape[0] > costs.shape[1]:
        columns, rows = _edges(costs.T, k, matching)
        return rows, columns
    is_at_most = matching is Matching.AT_MOST
    taken = _columns(costs.clip(max=0) if is_at_most else costs, len(costs) - k)
    (rows,) = np.nonzero(taken < costs.shape[1])
    if is_at_most:
        rows = rows[costs[rows, taken[rows]] <= 0]
    return rows, taken[rows]


def _columns(costs: Float64, places: int) -> Int64:
    """Return the column that each row takes; those past the last are places to stay out, which cost less than any.

    Costs are scaled by a power of two, which changes no order, so that none is above 1 and a place is cheaper than all.
    """
    _, exponent = np.frexp(np.abs(costs).max(initial=0.0))
    places_to_stay = np.full((len(costs), places), -2.0)
    columns: Int64 = linear_sum_assignment(np.hstack([np.ldexp(costs, -exponent), places_to_stay]))[1]
    return columns
