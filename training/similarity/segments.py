"""Maxima and means over the sets of a matrix, one set after the other, padded where sets differ in size.

Shape suffixes: B sentence sets, C image sets, N sentences and M images of all sets, n and m those of the largest set; R
rows of any kind, L members of the largest segment.
"""

import numpy as np
import torch
from torch import Tensor

from training.data.ragged import Int64, Ragged, to_device


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
    places = np.where(padded, starts, starts + steps[None, :])
    mask = to_device(padded, device) if padded.any() else None
    return to_device(places, device), mask
