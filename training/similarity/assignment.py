"""AP: maximum-weight matchings of sentences and images (Hessel 2019, 3.2), for one matrix or for all pairs of a batch.

Every matching is an assignment problem, solved exactly: a block of one packed matrix, turned so that it has at most as
many rows as columns. Each row takes one column of its own; where fewer edges than rows are wanted, the others take
places to stay out. Staying out gains more than any entry, so every place is taken and exactly `edges` rows take an
entry:

                 width     height - edges places
    height rows  gains     bonus

A matrix on a GPU is fetched: assignments are solved on the host. Which entries are selected is not differentiated, the
entries are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from lapjv import lapjv
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from training.data.ragged import Bool, Floats, Int64, Ragged, require_finite, to_device

SMALLEST_FOR_LAPJV = 16  # columns


class Matching(StrEnum):
    """`exact` selects exactly k edges (H's code); `at_most` leaves out an edge that would lower the sum."""

    EXACT = "exact"
    AT_MOST = "at_most"


@dataclass(frozen=True, slots=True)
class Edges:
    """E candidate edges of P pairs of sets, one a row of the smaller set, pair by pair; on the matrix's device.

    Attributes:
        entries: E positions in the matrix laid out row by row.
        is_selected: E, whether the edge is one of the matching; elsewhere, the row stays out and its entry is any.
        pairs: E numbers of the pairs of sets.
    """

    entries: Tensor
    is_selected: Tensor
    pairs: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """P blocks of an N x M matrix, each an assignment problem (every field: P of them).

    Attributes:
        tops: first row of the block in the matrix.
        lefts: its first column.
        heights: rows of the problem, at least 1.
        widths: columns of the problem, at least as many.
        is_turned: whether rows of the problem are columns of the matrix.
        edges: how many rows take an entry, at most all.
    """

    tops: Int64
    lefts: Int64
    heights: Int64
    widths: Int64
    is_turned: Bool
    edges: Int64

    @classmethod
    def of(cls, sentences: Ragged, images: Ragged, sets: Int64, others: Int64, edges: Int64) -> Problems:
        """Return the problem of `edges[p]` edges of sentence set `sets[p]` and image set `others[p]` for each `p`."""
        n, m = sentences.counts[sets], images.counts[others]
        return cls(
            tops=sentences.offsets[sets],
            lefts=images.offsets[others],
            heights=np.minimum(n, m),
            widths=np.maximum(n, m),
            is_turned=n > m,
            edges=edges,
        )

    @property
    def rows(self) -> Ragged:
        """Return the rows of all problems, one problem after the other."""
        return Ragged.of(self.heights)

    @property
    def places(self) -> Int64:
        """Return how many rows stay out."""
        return self.heights - self.edges

    def steps(self, matrix_width: int) -> tuple[Int64, Int64]:
        """Return how far apart rows, and columns, of a problem are among the matrix's entries laid out row by row."""
        return np.where(self.is_turned, 1, matrix_width), np.where(self.is_turned, matrix_width, 1)


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
    is_at_most, is_turned = Matching(matching) is Matching.AT_MOST, weights.shape[0] > weights.shape[1]
    block = weights.T if is_turned else weights
    costs = -(block.clip(min=0) if is_at_most else block).astype(np.float64)
    columns = _columns(costs, len(block) - k, _stay_cost(costs))
    (rows,) = np.nonzero(columns < block.shape[1])
    if is_at_most:
        rows = rows[block[rows, columns[rows]] >= 0]
    columns = columns[rows].astype(np.int64)
    if not is_turned:
        return rows, columns
    order = np.argsort(columns)
    return columns[order], rows[order]


def predicted_pairs(similarities: Floats) -> tuple[Int64, Int64]:
    """Return rows and columns of the links that an n x m matrix predicts, by row.

    As in figure 4 of Hessel 2019, they are the matching that AP sums over, of at most min(n, m) edges: each sentence
    and each image has at most one link, and no link has a similarity below zero. Raises as `match`.

    >>> predicted_pairs(np.array([[0.9, 0.8], [0.7, 0.1], [-0.5, -0.2]]))
    (array([0, 1]), array([1, 0]))
    """
    if not similarities.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return match(similarities, min(similarities.shape), Matching.AT_MOST)


def match_batch(
    weights: Tensor,
    sentences: Ragged,
    images: Ragged,
    *,
    edges: Int64,
    matching: Matching | str,
) -> Edges:
    """Return the matching of every block of an N x M matrix: sentence set `i` (rows) against image set `j` (columns).

    Args:
        weights: N x M, all sentences against all images. What is not finite counts as 0 in the choice of entries; the
            step's own check (`training.loop.step`) then says so.
        sentences: which rows are of which of the B sentence sets.
        images: which columns are of which of the C image sets.
        edges: B x C, how many edges each matching has; at most as many as its smaller set has members.
        matching: see `match`.

    Returns:
        Edges whose pair `(i, j)` is number `i * C + j`.

    >>> found = match_batch(torch.eye(2), Ragged.of([2]), Ragged.of([2]), edges=np.array([[2]]), matching="exact")
    >>> found.entries.tolist()
    [0, 3]
    """
    sets, others = (numbers.ravel() for numbers in np.indices((len(sentences), len(images))))
    return _match(weights, Problems.of(sentences, images, sets, others, edges.ravel()), Matching(matching))


def match_own(
    weights: Tensor,
    sentences: Ragged,
    images: Ragged,
    *,
    edges: Int64,
    matching: Matching | str,
) -> Edges:
    """Return the matching of the diagonal blocks alone, sentence set `i` against image set `i`: pair number `i`.

    Arguments as of `match_batch`, but of `edges` there are B.

    >>> found = match_own(torch.eye(2), Ragged.of([1, 1]), Ragged.of([1, 1]), edges=np.ones(2, int), matching="exact")
    >>> found.entries.tolist(), found.pairs.tolist()
    ([0, 3], [0, 1])
    """
    sets = np.arange(len(sentences))
    return _match(weights, Problems.of(sentences, images, sets, sets, edges), Matching(matching))


def assign(gains: Floats, problems: Problems) -> Int64:
    """Return the entry that each row of each problem takes, so that each problem's sum of entries is the largest.

    Args:
        gains: N x M, finite.
        problems: blocks of it.

    Returns:
        Positions in `gains` laid out row by row, one a row of a problem, one problem after the other; `~position` (a
        negative number) of the problem's first entry where a row stays out.

    >>> sizes, first = Ragged.of([2]), np.zeros(1, np.int64)
    >>> problems = Problems.of(sizes, sizes, first, first, sizes.counts)
    >>> assign(np.array([[0.9, 0.8], [0.7, 0.1]]), problems).tolist()
    [1, 2]
    """
    costs = -gains.astype(np.float64)
    stay = _stay_cost(costs)
    taken = [np.zeros(0, np.int64)]
    fields = problems.tops, problems.lefts, problems.heights, problems.widths, problems.is_turned, problems.places
    for top, left, height, width, is_turned, places in zip(*(field.tolist() for field in fields), strict=True):
        if is_turned:
            block = costs[top : top + width, left : left + height].T
        else:
            block = costs[top : top + height, left : left + width]
        taken.append(_columns(block, places, stay))
    columns, rows = np.concatenate(taken), problems.rows
    row_steps, column_steps = problems.steps(gains.shape[1])
    starts = problems.tops * gains.shape[1] + problems.lefts
    entries = starts[rows.owners] + rows.numbers * row_steps[rows.owners] + columns * column_steps[rows.owners]
    positions: Int64 = np.where(columns < problems.widths[rows.owners], entries, ~starts[rows.owners])
    return positions


def _stay_cost(costs: Floats) -> float:
    """Return what it costs a row to take no entry: less than any entry, so that every place is taken."""
    return -1.0 - float(np.abs(costs).max(initial=0.0))


def _columns(costs: Floats, places: int, stay: float) -> Int64:
    """Return the column that each row takes; those past the last are places to stay out, which cost `stay`.

    scipy takes rectangles; lapjv takes squares alone, and is faster where few rows must be added to make one.
    """
    height, width = costs.shape
    whole = width + places
    if whole >= SMALLEST_FOR_LAPJV and 6 * (whole - height) <= whole:
        square = np.zeros((whole, whole))
        square[:height, :width], square[:height, width:] = costs, stay
        columns: Int64 = lapjv(square, force_doubles=True)[0][:height]
        return columns
    if places:
        costs = np.hstack([costs, np.full((height, places), stay)])
    columns = linear_sum_assignment(costs)[1]
    return columns


def _match(weights: Tensor, problems: Problems, matching: Matching) -> Edges:
    finite = torch.nan_to_num(weights.detach(), posinf=0.0, neginf=0.0)
    gains = finite.clamp(min=0) if matching is Matching.AT_MOST else finite
    known_to_numpy = gains.to(torch.promote_types(gains.dtype, torch.float32)).cpu().numpy()
    taken = to_device(assign(known_to_numpy, problems), weights.device)
    is_selected = taken >= 0
    entries = torch.where(is_selected, taken, ~taken)
    if matching is Matching.AT_MOST:
        is_selected &= finite.flatten().index_select(0, entries) >= 0
    return Edges(entries, is_selected, to_device(problems.rows.owners, weights.device))
