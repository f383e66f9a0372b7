"""Similarity of a sentence set and an image set, from their cosine matrix (Hessel 2019, 3.2; SPEC 4).

Kinds are members of enumerations or their plain names (`"ap"`); another name is a `ValueError`. `set_similarity` is
the definition, for one matrix; `blocks_similarity` is the same for all pairs of a batch, `own_similarity` for each
document's own pair alone. All are differentiable: a maximum passes its gradient to the entry it came from (shared
evenly between ties), AP to the selected entries alone.

Shape suffixes: B sentence sets, C image sets, N sentences and M images of all sets, n and m those of one (of the
largest, where padded).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from training.config import Combine, Matching, Similarity, Solver
from training.data.ragged import Int64, Ragged, to_device
from training.similarity.assignment import Edges, edge_counts, match, match_batch, match_own


def set_similarity(
    matrix_nm: Tensor,
    kind: Similarity | str,
    k: str = "min",
    combine: Combine | str = Combine.SUM,
    matching: Matching | str = Matching.EXACT,
) -> Tensor:
    """Return the similarity of one sentence set and one image set, a scalar.

    Args:
        matrix_nm: n x m cosines, n and m at least 1.
        kind: DC (`k` not used), TK, NegTK (Li 2022: `-TK(-M)`, from the k smallest row and column minima) or AP.
        k: how many maxima (TK) or edges (AP) count; see `training.similarity.assignment.edge_counts`.
        combine: whether DC, TK and NegTK sum the two means or average them.
        matching: the constraint of AP. `at_most` without any edge gives 0.
    """
    kind, combine, matching = Similarity(kind), Combine(combine), Matching(matching)
    if kind is Similarity.NEG_TK:
        return -set_similarity(-matrix_nm, Similarity.TK, k, combine)
    n, m = matrix_nm.shape
    count = int(edge_counts(n, m, k))
    if kind is Similarity.AP:
        rows, columns = match(matrix_nm.detach().double().cpu().numpy(), count, matching)
        return matrix_nm[torch.from_numpy(rows), torch.from_numpy(columns)].sum() / max(len(rows), 1)
    by_row, by_column = matrix_nm.amax(dim=1), matrix_nm.amax(dim=0)
    if kind is Similarity.TK:
        by_row, by_column = by_row.topk(count).values, by_column.topk(count).values
    return (by_row.mean() + by_column.mean()) * _weight(combine)


def blocks_similarity(
    matrix_NM: Tensor,
    sentences: Ragged,
    images: Ragged,
    kind: Similarity | str,
    *,
    k: str = "min",
    combine: Combine | str = Combine.SUM,
    matching: Matching | str = Matching.EXACT,
    solver: Solver = Solver.HOST,
) -> Tensor:
    """Return the B x C similarities of the blocks of a matrix: sentence set `i` (rows) by image set `j` (columns).

    Args:
        matrix_NM: cosines of all sentences with all images, one set after the other.
        sentences: which rows are of which of the B sentence sets; none is empty.
        images: which columns are of which of the C image sets; none is empty.
        kind: see `set_similarity`.
        k: see `set_similarity`.
        combine: see `set_similarity`.
        matching: see `set_similarity`.
        solver: of AP's assignments.
    """
    kind, combine, matching = Similarity(kind), Combine(combine), Matching(matching)
    if kind is Similarity.NEG_TK:
        return -blocks_similarity(-matrix_NM, sentences, images, Similarity.TK, k=k, combine=combine)
    if kind is Similarity.AP:
        shape = len(sentences), len(images)
        edges = match_batch(matrix_NM, sentences, images, k=k, matching=matching, solver=solver)
        return _selected_means(matrix_NM, edges, shape[0] * shape[1]).view(shape)
    counts_BC = edge_counts(sentences.counts[:, None], images.counts[None, :], k)
    best_image_NC = _segment_max(matrix_NM, images)
    best_text_MB = _segment_max(matrix_NM.T, sentences)
    if kind is Similarity.DC:
        by_row_BC, by_column_CB = _segment_mean(best_image_NC, sentences), _segment_mean(best_text_MB, images)
    else:
        by_row_BC = _segment_top_mean(best_image_NC, sentences, counts_BC)
        by_column_CB = _segment_top_mean(best_text_MB, images, counts_BC.T)
    return (by_row_BC + by_column_CB.T) * _weight(combine)


def own_similarity(
    matrix_NM: Tensor,
    sentences: Ragged,
    images: Ragged,
    kind: Similarity | str,
    *,
    k: str = "min",
    combine: Combine | str = Combine.SUM,
    matching: Matching | str = Matching.EXACT,
    solver: Solver = Solver.HOST,
) -> Tensor:
    """Return the B similarities of the diagonal blocks alone: sentence set `i` by image set `i`.

    The diagonal of `blocks_similarity`, at a cost that grows with B and not with its square.
    """
    kind, combine, matching = Similarity(kind), Combine(combine), Matching(matching)
    if kind is Similarity.NEG_TK:
        return -own_similarity(-matrix_NM, sentences, images, Similarity.TK, k=k, combine=combine)
    if kind is Similarity.AP:
        edges = match_own(matrix_NM, sentences, images, k=k, matching=matching, solver=solver)
        return _selected_means(matrix_NM, edges, len(sentences))
    blocks_Bnm = _own_blocks(matrix_NM, sentences, images)
    by_row_Bn, by_column_Bm = blocks_Bnm.amax(dim=2), blocks_Bnm.amax(dim=1)
    counts = edge_counts(sentences.counts, images.counts, k)
    row_counts, column_counts = (sentences.counts, images.counts) if kind is Similarity.DC else (counts, counts)
    return (_top_mean(by_row_Bn, row_counts) + _top_mean(by_column_Bm, column_counts)) * _weight(combine)


def _weight(combine: Combine) -> float:
    return 1.0 if combine is Combine.SUM else 0.5


def _selected_means(matrix_NM: Tensor, edges: Edges, pairs: int) -> Tensor:
    """Return per pair of sets the mean of the entries that AP selects; without any, 0."""
    zeros = matrix_NM.new_zeros(pairs)
    counts = zeros.index_add(0, edges.pairs, edges.is_selected.to(zeros))
    entries = matrix_NM.flatten().index_select(0, edges.entries).masked_fill(~edges.is_selected, 0.0)
    return zeros.index_add(0, edges.pairs, entries) / counts.clamp(min=1)


def _own_blocks(matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
    """Return B x n x m: the diagonal blocks, padded with -inf."""
    places_Bn, no_text_Bn = _padding(sentences, matrix_NM.device)
    places_Bm, no_image_Bm = _padding(images, matrix_NM.device)
    blocks_Bnm = matrix_NM[places_Bn[:, :, None], places_Bm[:, None, :]]
    if no_text_Bn is not None:
        blocks_Bnm = blocks_Bnm.masked_fill(no_text_Bn[:, :, None], -torch.inf)
    if no_image_Bm is not None:
        blocks_Bnm = blocks_Bnm.masked_fill(no_image_Bm[:, None, :], -torch.inf)
    return blocks_Bnm


def _top_mean(rows_BL: Tensor, counts: Int64) -> Tensor:
    """Return per row the mean of its `counts` largest entries (padding is -inf)."""
    falling_BL = rows_BL.sort(dim=1, descending=True).values
    counts_B = to_device(counts, rows_BL.device)
    beyond_BL = torch.arange(falling_BL.shape[1], device=rows_BL.device)[None, :] >= counts_B[:, None]
    return falling_BL.masked_fill(beyond_BL, 0.0).sum(dim=1) / counts_B


def _segment_max(rows_RM: Tensor, segments: Ragged) -> Tensor:
    """Return R x C: per row, the maximum over each segment of columns."""
    places_CL, padded_CL = _padding(segments, rows_RM.device)
    if padded_CL is None:
        return rows_RM.reshape(-1, *places_CL.shape).amax(dim=2)
    spread_RCL = rows_RM.index_select(1, places_CL.flatten()).view(-1, *places_CL.shape)
    return spread_RCL.masked_fill(padded_CL, -torch.inf).amax(dim=2)


def _segment_mean(rows_NC: Tensor, segments: Ragged) -> Tensor:
    """Return B x C: the mean over each segment of rows."""
    owners = to_device(segments.owners, rows_NC.device)
    total = rows_NC.new_zeros((len(segments), rows_NC.shape[1])).index_add(0, owners, rows_NC)
    return total / to_device(segments.counts, rows_NC.device)[:, None]


def _segment_top_mean(rows_NC: Tensor, segments: Ragged, counts_BC: Int64) -> Tensor:
    """Return B x C: over each segment of rows, the mean of the `counts_BC` largest."""
    places_BL, padded_BL = _padding(segments, rows_NC.device)
    spread_BLC: Tensor = rows_NC.index_select(0, places_BL.flatten()).view(*places_BL.shape, -1)
    if padded_BL is not None:
        spread_BLC = spread_BLC.masked_fill(padded_BL[:, :, None], -torch.inf)
    falling_BLC = spread_BLC.sort(dim=1, descending=True).values
    counts = to_device(counts_BC, rows_NC.device)
    beyond_BLC = torch.arange(falling_BLC.shape[1], device=rows_NC.device)[None, :, None] >= counts[:, None, :]
    return falling_BLC.masked_fill(beyond_BLC, 0.0).sum(dim=1) / counts


def _padding(segments: Ragged, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return C x L positions of each segment's members, and where those are padding (None: nowhere)."""
    steps, starts = np.arange(segments.counts.max()), segments.offsets[:-1, None]
    padded = steps[None, :] >= segments.counts[:, None]
    places = np.where(padded, starts, starts + steps[None, :])
    mask = to_device(padded, device) if padded.any() else None
    return to_device(places, device), mask
