"""Soft plans: how much of each sentence of a document goes to each of its images (Cuturi 2013), for any n and m.

A plan of n sentences and m images is partial: its sum is min(n, m), no row and no column sums to more than 1. The
longer side has one more partner, which takes what is left over of it: with that, rows and columns have fixed sums, and
Sinkhorn's rounds go towards the one plan that is their product form. What a pair with that partner would score changes
nothing, since the partner is scaled as a whole.

And order, learnt from plans without links: at which difference of places partners stand.

    place     0 for the first sentence of a document, 1 for its last one, 1/2 for a single one; the same for images, but
              that an image whose place in the layout is known has that of the text there
    bin       of a pair: the place of the image less that of the sentence, -1 to 1, in nine equal parts
    weight    of a bin: what plans made by content alone put there, over what equal plans put there, `SMOOTHING`
              documents of equal plans added to both

Plans are counted in tenths of the documents, so that weights of nine tenths are judged on the last one: an order is
shown where the mean gain in log-likelihood of a plan, over the tenths, is above zero by `ERRORS` standard errors.

Shape suffixes: B documents, n and m sentences and images of the largest, n' and m' one more, F folds, K bins; the 2 are
plans, equal plans.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.documents import UNKNOWN_PLACE, DocumentSet
from training.data.ragged import Float64, Floats, Int64, Ragged, to_device

ROUNDS = 15
SHARPNESS = 10.0  # at link time
BINS, FOLDS, SMOOTHING, ERRORS = 9, 10, 5.0, 3.0
ENOUGH = 20  # documents: of fewer no order is learnt


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


def plan_of(scores_nm: Floats) -> Float64:
    """Return n x m logarithms of how much of each sentence of a document goes to each image, over an equal share.

    Similarities are multiplied with `SHARPNESS`.
    """
    n, m = scores_nm.shape
    scores = torch.from_numpy(SHARPNESS * scores_nm.astype(np.float64))
    plan: Float64 = soft_plans(scores[None], torch.tensor([n]), torch.tensor([m]))[0].numpy()
    return plan + math.log(max(n, m))


def _log_sums(like: Tensor, own_B: Tensor, other_B: Tensor, size: int) -> Tensor:
    """Return B x (size + 1) logarithms of what rows (or columns) sum to: 1, none beyond, and last the partner's."""
    sums_Bs = (torch.arange(size, device=like.device)[None, :] < own_B[:, None]).to(like.dtype)
    partner_B1 = (other_B - own_B).clamp(min=0).to(like.dtype)[:, None]
    return torch.cat([sums_Bs, partner_B1], dim=1).log()


def _scale(wanted: Tensor, current: Tensor) -> Tensor:
    """Return what rows or columns are to be multiplied with, as logarithms; 0 times 0 stays."""
    return torch.where(wanted.isneginf(), 0.0, wanted - current)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a model's training documents.

    Attributes:
        log_weights: K logarithms of the bins' weights, which `learn` sets: zeros, where places do not count.
        is_tested: whether an order has to be shown (`link.order = auto`).
    """

    log_weights: Tensor
    is_tested: bool

    def learn(self, masses_F2K: Tensor) -> None:
        """Take the weights out of all documents' masses: of few documents, and where no order is shown, zeros."""
        total_2K = masses_F2K.sum(dim=0)
        is_known = round(float(total_2K[1].sum())) >= ENOUGH and (not self.is_tested or _is_shown(masses_F2K))
        self.log_weights.copy_(_log_weights(total_2K) if is_known else torch.zeros(BINS))

    @property
    def words(self) -> str:
        """Return where pictures stand: the bin of the largest weight, and how much it weighs."""
        largest = int(self.log_weights.argmax())
        times, side = math.exp(float(self.log_weights[largest])), largest - BINS // 2
        where = "next to" if not side else "after" if side > 0 else "before"
        return f"pictures are {where} their sentences {times:.1f} times as often as by chance"


def relative_places(documents: DocumentSet) -> tuple[Float64, Float64]:
    """Return N places of sentences and M of images, 0 to 1."""
    sentences, images = documents.sentences, documents.images
    numbers = documents.sentence_numbers
    last = np.zeros(len(sentences), np.int64)
    np.maximum.at(last, sentences.owners, numbers)
    shown = _relative(images.numbers, (images.counts - 1)[images.owners])
    if documents.after_sentence is not None:
        after = documents.after_sentence
        shown = np.where(after == UNKNOWN_PLACE, shown, _relative(after - 0.5, last[images.owners]).clip(0, 1))
    return _relative(numbers, last[sentences.owners]), shown


def bins_of(text_places: Tensor, image_places: Tensor) -> Tensor:
    """Return ... x n x m bins of the pairs of ... x n and ... x m places."""
    differences = image_places[..., None, :] - text_places[..., :, None]
    return ((differences + 1) * (BINS / 2)).long().clamp(0, BINS - 1)


def masses(weights_Bnm: Tensor, bins_Bnm: Tensor, sentences: Ragged, images: Ragged, folds_B: Tensor) -> Tensor:
    """Return F x 2 x K sums, float64: what plans and equal plans of some documents put into each bin.

    Args:
        weights_Bnm: of pairs, of sum 1 a document; 0 beyond its size.
        bins_Bnm: of the pairs.
        sentences: of the B documents.
        images: likewise.
        folds_B: which fold each document is of.
    """
    device, shape = weights_Bnm.device, weights_Bnm.shape
    n_B, m_B = (torch.as_tensor(each.counts, device=device) for each in (sentences, images))
    rows, columns = (torch.arange(size, device=device) for size in shape[1:])
    are_pairs = (rows[:, None] < n_B[:, None, None]) & (columns < m_B[:, None, None])
    equal_Bnm = are_pairs.double() / (n_B * m_B)[:, None, None]
    where = folds_B.to(device)[:, None, None] * 2 * BINS + bins_Bnm
    flat = torch.zeros(FOLDS * 2 * BINS, dtype=torch.float64, device=device)
    for number, mass_Bnm in enumerate((weights_Bnm.double() * are_pairs, equal_Bnm)):
        flat.index_add_(0, (where + number * BINS).flatten(), mass_Bnm.flatten())
    return flat.view(FOLDS, 2, BINS)


def _is_shown(masses_F2K: Tensor) -> bool:
    total_2K = masses_F2K.sum(dim=0)
    filled = [fold_2K for fold_2K in masses_F2K if fold_2K[1].sum() > 0]
    gains = [float(fold_2K[0] @ _log_weights(total_2K - fold_2K) / fold_2K[0].sum()) for fold_2K in filled]
    return len(gains) > 1 and float(np.mean(gains)) > ERRORS * float(np.std(gains, ddof=1)) / math.sqrt(len(gains))


def _log_weights(masses_2K: Tensor) -> Tensor:
    plans_K, equal_K = masses_2K
    smooth_K = equal_K * (SMOOTHING / equal_K.sum())
    return torch.where(equal_K > 0, ((plans_K + smooth_K) / (equal_K + smooth_K)).log(), 0.0)


def _relative(numbers: Int64 | Floats, last: Int64) -> Float64:
    """Return numbers over the last one of their document; 1/2 where that is 0."""
    relative: Float64 = np.divide(numbers, last, out=np.full(len(numbers), 0.5), where=last > 0)
    return relative
