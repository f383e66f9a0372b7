"""Soft plans: how much of each sentence of a document goes to each of its images (Cuturi 2013), for any n and m.

A plan of n sentences and m images is partial: its sum is min(n, m), no row and no column sums to more than 1. The
longer side has one more partner, which takes what is left over of it: with that, rows and columns have fixed sums, and
Sinkhorn's rounds go towards the one plan that is their product form. What a pair with that partner would score changes
nothing, since the partner is scaled as a whole.

Shape suffixes: B documents, n and m sentences and images of the largest, n' and m' one more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.data.ragged import Ragged, to_device

ROUNDS = 15


def pair_weights(cosines_Bnm: Tensor, sentences: Ragged, images: Ragged, sharpness: float | None) -> Tensor:
    """Return B x n x m weights of pairs that sum to 1 a document, and are 0 beyond its size.

    Args:
        cosines_Bnm: what they are beyond a document's size does not matter.
        sentences: of the B documents, each of at least 1.
        images: likewise.
        sharpness: what cosines are multiplied with before the plan; None: all pairs of a document weigh alike.
    """
    n_B, m_B = (to_device(each.counts, cosines_Bnm.device) for each in (sentences, images))
    scores_Bnm = torch.zeros_like(cosines_Bnm) if sharpness is None else sharpness * cosines_Bnm
    plans_Bnm = soft_plans(scores_Bnm, n_B, m_B).exp()
    return plans_Bnm / plans_Bnm.sum(dim=(1, 2), keepdim=True)


def soft_plans(scores_Bnm: Tensor, sentences_B: Tensor, images_B: Tensor, *, rounds: int = ROUNDS) -> Tensor:
    """Return the logarithms of B x n x m plans; -inf beyond a document's sentences and images.

    Args:
        scores_Bnm: similarities times their sharpness; what they are beyond a document's size does not matter.
        sentences_B: number of sentences of each document, at least 1.
        images_B: number of images of each, at least 1.
        rounds: of scaling rows, then columns.
    """
    rows_Bn = _log_sums(scores_Bnm, sentences_B, images_B, scores_Bnm.shape[1])
    columns_Bm = _log_sums(scores_Bnm, images_B, sentences_B, scores_Bnm.shape[2])
    kernel_Bnm = torch.nn.functional.pad(scores_Bnm, (0, 1, 0, 1))
    kernel_Bnm[:, -1, -1] = -torch.inf
    kernel_Bnm = kernel_Bnm.masked_fill(rows_Bn.isneginf()[:, :, None] | columns_Bm.isneginf()[:, None, :], -torch.inf)
    by_column_Bm = torch.zeros_like(columns_Bm)
    by_row_Bn = torch.zeros_like(rows_Bn)
    for _ in range(rounds):
        by_row_Bn = _scale(rows_Bn, (kernel_Bnm + by_column_Bm[:, None, :]).logsumexp(dim=2))
        by_column_Bm = _scale(columns_Bm, (kernel_Bnm + by_row_Bn[:, :, None]).logsumexp(dim=1))
    plans: Tensor = kernel_Bnm + by_row_Bn[:, :, None] + by_column_Bm[:, None, :]
    return plans[:, :-1, :-1]


def _log_sums(like: Tensor, own_B: Tensor, other_B: Tensor, size: int) -> Tensor:
    """Return B x (size + 1) logarithms of what rows (or columns) sum to: 1, none beyond, and last the partner's."""
    positions = torch.arange(size, device=like.device)
    sums_Bs = (positions[None, :] < own_B[:, None]).to(like.dtype)
    partner_B1 = (other_B - own_B).clamp(min=0).to(like.dtype)[:, None]
    return torch.cat([sums_Bs, partner_B1], dim=1).log()


def _scale(wanted: Tensor, current: Tensor) -> Tensor:
    """Return what rows or columns are to be multiplied with, as logarithms; 0 times 0 stays."""
    return torch.where(wanted.isneginf(), 0.0, wanted - current)
