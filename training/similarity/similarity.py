"""Similarities of a sentence set and an image set (Hessel 2019, 3.2): DC, TK and AP, for the sets of a batch.

All start from the cosine matrix of sentences and images (SPEC 4) and are differentiable: a maximum passes its gradient
to the entry it came from (shared evenly between ties), AP to the selected entries alone.

Shape suffixes: B sentence sets, C image sets, N sentences and M images of all sets, n and m those of the largest set; R
rows of any kind, L members of the largest segment.

AP is of maximum-weight matchings, of one matrix or of pairs of sets. Every matching is an assignment problem, solved
exactly for a matrix that is turned so that it has at most as many rows as columns. Each row takes one column of its
own; where fewer edges than rows are wanted, the others take places to stay out. Staying out gains more than any entry,
so every place is taken and exactly `k` rows take an entry:

                 width     height - k places
    height rows  gains     bonus

A matrix on a GPU is fetched: assignments are solved on the host. Which entries are selected is not differentiated, the
entries are.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from schemas.configs import require
from schemas.plugins import SIMILARITIES, Group
from training.data.ragged import Float64, Floats, Int64, Ragged, require_finite, to_device
from training.parts import PartSettings


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
    and each image has at most one link, and no link has a similarity below zero. Of equally good matchings it is one
    that does not go by the order of sentences and images, which says nothing. Raises as `match`.

    >>> predicted_pairs(np.array([[0.9, 0.8], [0.7, 0.1], [-0.5, -0.2]]))
    (array([0, 1]), array([1, 0]))
    """
    numbers = np.random.default_rng(similarities.shape)
    shuffled, turned = map(numbers.permutation, similarities.shape)
    rows, columns = match(similarities[np.ix_(shuffled, turned)], min(similarities.shape), Matching.AT_MOST)
    order = np.argsort(shuffled[rows])
    return shuffled[rows][order], turned[columns][order]


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
    columns: Int64 = scipy.optimize.linear_sum_assignment(np.hstack([np.ldexp(costs, -exponent), places_to_stay]))[1]
    return columns


class Combine(StrEnum):
    """How row and column means are put together: H sums them, L averages."""

    SUM = "sum"
    MEAN = "mean"

    @property
    def weight(self) -> float:
        """Return what the sum of the two means is multiplied with."""
        return 1.0 if self is Combine.SUM else 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSimilarity(PartSettings, ABC):
    """Settings that every similarity has, and its two methods.

    Shape suffixes: B sentence sets, C image sets, N sentences and M images of all sets.
    """

    group: ClassVar[Group] = SIMILARITIES
    part: ClassVar[str] = "objective.similarity"

    @abstractmethod
    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B x C similarities of the blocks of a matrix: sentence set `i` (rows) by image set `j` (columns).

        Args:
            matrix_NM: cosines of all sentences with all images, one set after the other.
            sentences: which rows are of which of the B sentence sets; none is empty.
            images: which columns are of which of the C image sets; none is empty.
        """

    @abstractmethod
    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B similarities of the diagonal blocks alone: sentence set `i` by image set `i`.

        The diagonal of `blocks`, at a cost that grows with B and not with its square.
        """


def check_k(k: str, *, field: str) -> None:
    """Raise a `ConfigError` unless `k` says how many edges or maxima count.

    `min` (min(n, m)), `half` (half of it rounded up), a fraction of it such as `0.25`, or a count such as `5`.

    >>> check_k("half", field="similarity.k")
    """
    try:
        value = {"min": 1.0, "half": 1.0}.get(k) or float(k)
    except ValueError:
        value = 0.0
    is_k = 0 < value < 1 or (value >= 1 and value == value // 1)
    require(is_k, field=field, value=k, rule="expected min, half, a fraction such as 0.25, or a count such as 5")


def edge_counts(sentences: npt.ArrayLike, images: npt.ArrayLike, k: str) -> Int64:
    """Return how many edges or maxima count for sets of the given sizes (arrays that broadcast).

    `min`: min(n, m); `half`: half of it rounded up; a fraction: that share of it rounded up; a count: at most min(n,
    m).

    >>> edge_counts([2, 5], [3, 3], "half").tolist()
    [1, 2]
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


def own_blocks(matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
    """Return B x n x m: the diagonal blocks, padded with -inf.

    >>> own_blocks(torch.arange(4.0).view(2, 2), Ragged.of([1, 1]), Ragged.of([1, 1])).tolist()
    [[[0.0]], [[3.0]]]
    """
    places_Bn, no_text_Bn = padding(sentences, matrix_NM.device)
    places_Bm, no_image_Bm = padding(images, matrix_NM.device)
    blocks_Bnm = matrix_NM[places_Bn[:, :, None], places_Bm[:, None, :]]
    if no_text_Bn is not None:
        blocks_Bnm = blocks_Bnm.masked_fill(no_text_Bn[:, :, None], -torch.inf)
    if no_image_Bm is not None:
        blocks_Bnm = blocks_Bnm.masked_fill(no_image_Bm[:, None, :], -torch.inf)
    return blocks_Bnm


def top_mean(rows_BL: Tensor, counts: Int64) -> Tensor:
    """Return per row the mean of its `counts` largest entries (padding is -inf).

    >>> top_mean(torch.tensor([[3.0, 1.0, 2.0]]), np.array([2])).tolist()
    [2.5]
    """
    falling_BL = rows_BL.sort(dim=1, descending=True).values
    counts_B = to_device(counts, rows_BL.device)
    beyond_BL = torch.arange(falling_BL.shape[1], device=rows_BL.device)[None, :] >= counts_B[:, None]
    return falling_BL.masked_fill(beyond_BL, 0.0).sum(dim=1) / counts_B


def segment_max(rows_RM: Tensor, segments: Ragged) -> Tensor:
    """Return R x C: per row, the maximum over each segment of columns.

    >>> segment_max(torch.tensor([[3.0, 1.0, 2.0]]), Ragged.of([2, 1])).tolist()
    [[3.0, 2.0]]
    """
    places_CL, padded_CL = padding(segments, rows_RM.device)
    if padded_CL is None:
        return rows_RM.reshape(-1, *places_CL.shape).amax(dim=2)
    spread_RCL = rows_RM.index_select(1, places_CL.flatten()).view(-1, *places_CL.shape)
    return spread_RCL.masked_fill(padded_CL, -torch.inf).amax(dim=2)


def segment_mean(rows_NC: Tensor, segments: Ragged) -> Tensor:
    """Return B x C: the mean over each segment of rows.

    >>> segment_mean(torch.tensor([[3.0], [1.0], [2.0]]), Ragged.of([2, 1])).tolist()
    [[2.0], [2.0]]
    """
    owners = to_device(segments.owners, rows_NC.device)
    total = rows_NC.new_zeros((len(segments), rows_NC.shape[1])).index_add(0, owners, rows_NC)
    return total / to_device(segments.counts, rows_NC.device)[:, None]


def segment_top_mean(rows_NC: Tensor, segments: Ragged, counts_BC: Int64) -> Tensor:
    """Return B x C: over each segment of rows, the mean of the `counts_BC` largest.

    >>> segment_top_mean(torch.tensor([[3.0], [1.0], [2.0]]), Ragged.of([2, 1]), np.array([[1], [1]])).tolist()
    [[3.0], [2.0]]
    """
    places_BL, padded_BL = padding(segments, rows_NC.device)
    spread_BLC: Tensor = rows_NC.index_select(0, places_BL.flatten()).view(*places_BL.shape, -1)
    if padded_BL is not None:
        spread_BLC = spread_BLC.masked_fill(padded_BL[:, :, None], -torch.inf)
    falling_BLC = spread_BLC.sort(dim=1, descending=True).values
    counts = to_device(counts_BC, rows_NC.device)
    beyond_BLC = torch.arange(falling_BLC.shape[1], device=rows_NC.device)[None, :, None] >= counts[:, None, :]
    return falling_BLC.masked_fill(beyond_BLC, 0.0).sum(dim=1) / counts


def padding(segments: Ragged, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return C x L positions of each segment's members, and where those are padding (None: nowhere).

    >>> columns, is_padding = padding(Ragged.of([2, 1]), torch.device("cpu"))
    >>> columns.tolist(), is_padding.tolist()
    ([[0, 1], [2, 2]], [[False, False], [False, True]])
    """
    steps, starts = np.arange(segments.counts.max()), segments.offsets[:-1, None]
    padded = steps[None, :] >= segments.counts[:, None]
    positions = np.where(padded, starts, starts + steps[None, :])
    return to_device(positions, device), to_device(padded, device) if padded.any() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dc(SetSimilarity):
    """DC: the mean of the row maxima and the mean of the column maxima.

    Attributes:
        combine: whether the two means are summed (H) or averaged (L).
    """

    name: str = "dc"
    combine: Combine = Combine.SUM

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        by_row_BC = segment_mean(segment_max(matrix_NM, images), sentences)
        by_column_CB = segment_mean(segment_max(matrix_NM.T, sentences), images)
        return (by_row_BC + by_column_CB.T) * self.combine.weight

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        blocks_Bnm = own_blocks(matrix_NM, sentences, images)
        by_row_B = top_mean(blocks_Bnm.amax(dim=2), sentences.counts)
        return (by_row_B + top_mean(blocks_Bnm.amax(dim=1), images.counts)) * self.combine.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Tk(SetSimilarity):
    """TK: the mean of the k largest row maxima and the mean of the k largest column maxima.

    Attributes:
        k: number of maxima that count: `min` (the smaller number of sentences and images), `half` (half of it, rounded
            up), a fraction of it such as `0.25`, or a count such as `5`.
        combine: whether the two means are summed (H) or averaged (L).
    """

    name: str = "tk"
    k: str = "min"
    combine: Combine = Combine.SUM

    def __post_init__(self) -> None:
        SetSimilarity.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        counts_BC = edge_counts(sentences.counts[:, None], images.counts[None, :], self.k)
        by_row_BC = segment_top_mean(segment_max(matrix_NM, images), sentences, counts_BC)
        by_column_CB = segment_top_mean(segment_max(matrix_NM.T, sentences), images, counts_BC.T)
        return (by_row_BC + by_column_CB.T) * self.combine.weight

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        blocks_Bnm = own_blocks(matrix_NM, sentences, images)
        counts = edge_counts(sentences.counts, images.counts, self.k)
        by_row_B = top_mean(blocks_Bnm.amax(dim=2), counts)
        return (by_row_B + top_mean(blocks_Bnm.amax(dim=1), counts)) * self.combine.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Ap(SetSimilarity):
    """AP: the mean of the entries of the best matching.

    Attributes:
        k: number of edges: `min` (the smaller number of sentences and images), `half` (half of it, rounded up), a
            fraction of it such as `0.25`, or a count such as `5`.
        matching: `exact`: exactly k edges (H's code); `at_most`: an edge that would lower the sum is left out (H's
            paper); without any edge the similarity is 0.
    """

    name: str = "ap"
    k: str = "min"
    matching: Matching = Matching.EXACT

    def __post_init__(self) -> None:
        SetSimilarity.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        counts_BC = edge_counts(sentences.counts[:, None], images.counts[None, :], self.k)
        edges = match_pairs(matrix_NM, product(sentences, images), counts_BC.ravel(), self.matching)
        return _selected_means(matrix_NM, edges, counts_BC.size).view(counts_BC.shape)

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        counts_B = edge_counts(sentences.counts, images.counts, self.k)
        edges = match_pairs(matrix_NM, zip(sentences, images, strict=True), counts_B, self.matching)
        return _selected_means(matrix_NM, edges, len(counts_B))


def _selected_means(matrix_NM: Tensor, edges: Edges, pairs: int) -> Tensor:
    """Return per pair of sets the mean of the entries that AP selects; without any, 0."""
    zeros = matrix_NM.new_zeros(pairs)
    entries = matrix_NM.flatten().index_select(0, edges.entries)
    counts = zeros.index_add(0, edges.pairs, torch.ones_like(entries))
    return zeros.index_add(0, edges.pairs, entries) / counts.clamp(min=1)
