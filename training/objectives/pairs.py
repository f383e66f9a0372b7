"""What the terms share whose documents are one text and one image each: the other pairs of a batch are negatives.

`cosines_BB[i, j]` is text `i` with image `j`; `allowed_BB[i, j]` whether pair `j` is a negative of pair `i`.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from training.objectives.batch import EncodedBatch, check_pairs
from training.objectives.term import Term
from training.parts import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTerm(Term):
    """A term of documents that are one text and one image each."""

    @property
    def needs(self) -> Needs:
        return Needs(pairs=True)

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, self.name)
        return self.pair_losses(batch)

    @abstractmethod
    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses of the pairs."""


def triplet_sum_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of all negatives, in both directions (Liu 2020, eq. 1)."""
    own_B = cosines_BB.diagonal()
    over_images_BB = torch.relu(margin - own_B[:, None] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    over_texts_BB = torch.relu(margin - own_B[None, :] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    return over_images_BB.sum(dim=1) + over_texts_BB.sum(dim=0)
