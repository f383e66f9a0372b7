"""Documents as each other's negatives: what their similarities cost (Hessel 2019, eq. 1), and how they are counted."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.configs import NonNegativeInt, PositiveFloat
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.term import Term


class Loss(StrEnum):
    """What a negative costs, by how much more similar it is than the positive (H's code; the paper: hinge)."""

    HINGE = "hinge"
    LOGISTIC = "logistic"
    SOFTMAX = "softmax"


class Negatives(StrEnum):
    """Which negatives of a document count: the hardest, or the mean over all."""

    HARDEST = "hardest"
    MEAN = "mean"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingTerm(Term):
    """What the terms share that set a document against the others of its batch.

    Attributes:
        loss: what a negative document costs.
        negatives: the hardest negative document, or the mean over all.
        mean_epochs: epochs at the start in which training takes their mean whatever `negatives` says: the hardest
            negative of an untrained model is noise.
        margin: alpha of the hinges (H: 0.2).
    """

    loss: Loss = Loss.HINGE
    negatives: Negatives = Negatives.HARDEST
    mean_epochs: NonNegativeInt = 0
    margin: PositiveFloat = 0.2

    def ranked(
        self, similarity_BB: Tensor, batch: EncodedBatch, *, margin: float | None = None, own_B: Tensor | None = None
    ) -> Tensor:
        """Return the B losses of a batch by the similarities of its documents; see `cross_document_losses`."""
        return cross_document_losses(
            similarity_BB,
            batch.allowed,
            margin=self.margin if margin is None else margin,
            negatives=self.negatives_at(batch.draw_key),
            loss=self.loss,
            own_B=own_B,
        )

    def negatives_at(self, draw_key: DrawKey) -> Negatives:
        """Return how negatives count at a step: by their mean in the first `mean_epochs` epochs of training."""
        is_early = draw_key.split == "training" and 1 <= draw_key.epoch <= self.mean_epochs
        return Negatives.MEAN if is_early else self.negatives
