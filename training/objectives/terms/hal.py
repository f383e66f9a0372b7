"""HAL (Liu 2020, eq. 5), which weighs every negative by how hard it is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.negatives import log_one_plus_sum_exp
from training.objectives.pairs import PairTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class Hal(PairTerm):
    """N eq. 5.

    Attributes:
        alpha: scale of the negatives (N: 20).
        beta: scale of the positives (N: 30).
        epsilon: similarity above which a negative costs much (N: 0.2).
    """

    place = 7
    name: str = "hal"
    alpha: PositiveFloat = 20.0
    beta: PositiveFloat = 30.0
    epsilon: float = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return hal_losses(batch.cosines, batch.allowed, alpha=self.alpha, beta=self.beta, epsilon=self.epsilon)


def hal_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, alpha: float, beta: float, epsilon: float) -> Tensor:
    """Return HAL (Liu 2020, eq. 5), which weighs every negative by how hard it is.

    `log(1 + sum of exp(alpha (s - epsilon))) / alpha` over the negatives, both ways, less `log(1 + beta s_ii)`.

    A negative `s_ii`, for which the formula may have no value, counts as 0, as in the code of HAL's authors.
    """
    hardness_BB = alpha * (cosines_BB - epsilon)
    over_images_B = log_one_plus_sum_exp(hardness_BB, allowed_BB)
    over_texts_B = log_one_plus_sum_exp(hardness_BB.T, allowed_BB)
    return (over_images_B + over_texts_B) / alpha - torch.log1p(beta * torch.relu(cosines_BB.diagonal()))
