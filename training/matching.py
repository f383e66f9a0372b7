"""AP: maximum-weight matchings of sentences and images (Hessel 2019, 3.2), for one matrix or for all pairs of a batch.

Every matching is exact: an assignment problem a pair of sets, solved by `training.assignment` on the host and by
`training.assignment_gpu` where the matrix lies on a GPU. Which entries are selected is not differentiated, the entries
are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.assignment import Matrix, Problems, assign
from training.config import Matching
from training.data.ragged import Int64, Ragged
from training.host_arrays import to_device


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


def match(weights: Matrix, k: int, matching: Matching | str) -> tuple[Int64, Int64]:
    """Return rows and columns of the maximum-weight matching of an n x m matrix.

    Args:
        weights: n x m, finite.
        k: number of edges, at most min(n, m).
        matching: `exact`: exactly k edges; `at_most`: those of the best matching of at most k edges, which is the
            best of exactly k over `max(weights, 0)` without the edges that were negative.
    """
    sets = [Ragged.of([size]) for size in weights.shape]
    edges = match_batch(torch.from_numpy(np.array(weights)), *sets, k=str(k), matching=matching)
    rows, columns = np.divmod(edges.entries[edges.is_selected].numpy(), weights.shape[1])
    order = np.argsort(rows)
    return rows[order], columns[order]


def predicted_pairs(similarities: Matrix) -> tuple[Int64, Int64]:
    """Return rows and columns of the links that an n x m matrix predicts, by row.

    As in figure 4 of Hessel 2019, they are the matching that AP sums over, of at most min(n, m) edges: each sentence
    and each image has at most one link, and no link has a similarity below zero.
    """
    if not similarities.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return match(similarities, min(similarities.shape), Matching.AT_MOST)


def match_batch(weights: Tensor, sentences: Ragged, images: Ragged, *, k: str, matching: Matching | str) -> Edges:
    """Return the matching of every block of an N x M matrix: sentence set `i` (rows) against image set `j` (columns).

    Args:
        weights: N x M, all sentences against all images. What is not finite counts as 0 in the choice of entries; the
            step's own check (`training.loop.step`) then says so.
        sentences: which rows are of which of the B sentence sets.
        images: which columns are of which of the C image sets.
        k: see `edge_counts`.
        matching: see `match`.

    Returns:
        Edges whose pair `(i, j)` is number `i * C + j`.
    """
    sets, others = (numbers.ravel() for numbers in np.indices((len(sentences), len(images))))
    return _match(weights, _problems(sentences, images, sets, others, k), matching)


def match_own(weights: Tensor, sentences: Ragged, images: Ragged, *, k: str, matching: Matching | str) -> Edges:
    """Return the matching of the diagonal blocks alone, sentence set `i` against image set `i`: pair number `i`.

    Arguments as of `match_batch`.
    """
    sets = np.arange(len(sentences))
    return _match(weights, _problems(sentences, images, sets, sets, k), matching)


def _problems(sentences: Ragged, images: Ragged, sets: Int64, others: Int64, k: str) -> Problems:
    """Return the assignment problems of sentence set `sets[p]` against image set `others[p]`, for every pair `p`."""
    sizes = sentences.counts[sets], images.counts[others]
    return Problems.of(sentences.offsets[sets], images.offsets[others], sizes, edge_counts(*sizes, k))


def _match(weights: Tensor, problems: Problems, matching: Matching | str) -> Edges:
    matching = Matching(matching)
    finite = torch.nan_to_num(weights.detach(), posinf=0.0, neginf=0.0)
    taken = _assign(finite.clamp(min=0) if matching is Matching.AT_MOST else finite, problems)
    is_selected = taken >= 0
    entries = torch.where(is_selected, taken, ~taken)
    if matching is Matching.AT_MOST:
        is_selected &= finite.flatten().index_select(0, entries) >= 0
    return Edges(entries, is_selected, to_device(problems.owners, weights.device))


def _assign(gains: Tensor, problems: Problems) -> Tensor:
    """Return what `training.assignment.assign` does, as a tensor, computed where the matrix lies if that is possible.

    PyTorch brings Triton along with its builds for GPUs alone; without it, the matrix is fetched.
    """
    if gains.is_cuda and find_spec("triton"):
        from training.assignment_gpu import assign_on_gpu

        return assign_on_gpu(gains, problems)
    known_to_numpy = gains.to(torch.promote_types(gains.dtype, torch.float32))
    return to_device(assign(known_to_numpy.cpu().numpy(), problems), gains.device)
