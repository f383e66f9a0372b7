"""Cross-document loss (Hessel 2019, eq. 1): a document's own sets against the other documents'."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.config import Loss, Negatives, ObjectiveConfig
from training.objectives.batch import EncodedBatch, Moment, Objective


def cross_document_losses(
    similarity_BB: Tensor,
    allowed_BB: Tensor,
    *,
    margin: float,
    negatives: Negatives | str = Negatives.HARDEST,
    loss: Loss | str = Loss.HINGE,
    own_B: Tensor | None = None,
) -> Tensor:
    """Return the B losses of a batch whose documents are each other's negatives.

    Document `i` costs `h(s_ii, s_ij)` over other image sets `j`, plus `h(s_ii, s_ji)` over other sentence sets `j`: the
    largest of each (`hardest`) or the mean of each (`mean`). A document without any negative costs nothing.

        hinge     h(p, q) = max(0, margin - p + q)
        logistic  h(p, q) = log(1 + exp(q - p))
        softmax   not pair by pair: log(1 + sum over j of exp(margin - s_ii + s_ij)), the cross-entropy of the own set
                  among all, its similarity lowered by the margin

    Args:
        similarity_BB: sentence set `i` against image set `j`.
        allowed_BB: symmetric; whether `j` is a negative of `i`.
        margin: see above.
        negatives: how the costs of a document's negatives are put together (`softmax` always counts all).
        loss: which `h`.
        own_B: what stands for `s_ii`; the diagonal unless given.
    """
    negatives, loss = Negatives(negatives), Loss(loss)
    own_B = similarity_BB.diagonal() if own_B is None else own_B
    over_images_B = _over_negatives(similarity_BB - own_B[:, None], allowed_BB, margin, negatives, loss)
    over_sentences_B = _over_negatives(similarity_BB.T - own_B[:, None], allowed_BB, margin, negatives, loss)
    return over_images_B + over_sentences_B


def _over_negatives(excess_BB: Tensor, allowed_BB: Tensor, margin: float, negatives: Negatives, loss: Loss) -> Tensor:
    """Return per row the cost of its negatives, given by how much more similar they are than the own set."""
    if loss is Loss.SOFTMAX:
        return log_one_plus_sum_exp(excess_BB + margin, allowed_BB)
    costs_BB = torch.relu(margin + excess_BB) if loss is Loss.HINGE else F.softplus(excess_BB)
    costs_BB = costs_BB.masked_fill(~allowed_BB, 0.0)
    if negatives is Negatives.HARDEST:
        return costs_BB.amax(dim=1)
    return costs_BB.sum(dim=1) / allowed_BB.sum(dim=1).clamp(min=1)


def log_one_plus_sum_exp(values_BB: Tensor, counted_BB: Tensor) -> Tensor:
    """Return per row `log(1 + sum of exp(value))` over the counted entries; 0 where none is."""
    kept_BB = values_BB.masked_fill(~counted_BB, -torch.inf)
    return torch.cat([kept_BB.new_zeros((len(kept_BB), 1)), kept_BB], dim=1).logsumexp(dim=1)


def negatives_at(moment: Moment, config: ObjectiveConfig) -> Negatives:
    """Return how negatives count at a moment: by their mean in the first `mean_epochs` epochs of training."""
    is_early = moment.split == "training" and 1 <= moment.epoch <= config.mean_epochs
    return Negatives.MEAN if is_early else config.negatives


class CrossDocument(Objective):
    """The objective: all sentences and images of each document, similarity by configuration."""

    def losses(self, batch: EncodedBatch) -> Tensor:
        return cross_document_losses(
            batch.similarity(self.config),
            batch.allowed,
            margin=self.config.margin,
            negatives=negatives_at(batch.moment, self.config),
            loss=self.config.loss,
        )
