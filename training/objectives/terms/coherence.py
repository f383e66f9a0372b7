"""Coherence-aware loss (Alikhani 2022, eq. 2-3): the relations of a pair, predicted from its two vectors.

The head that predicts them is part of the model (`training.relations`); here is its loss alone, the second summand of
eq. 3. Relations are the only labels that training reads, in the training split, for this objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch, Relations, check_pairs
from training.objectives.term import Term
from training.parts import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Coherence(Term):
    """A eq. 2, added to a retrieval objective; 0 where a split's relations are not read (validation).

    Attributes:
        relations: `all`, or the one relation that is predicted (A's CMCM_c).
        relation_weight: lambda_cls, what the loss is multiplied with (A: 0.1).
    """

    is_addition = True
    place = 10
    spellings: ClassVar[Mapping[str, str]] = {"coherence-aware": "triplet-hardest+coherence"}
    name: str = "coherence"
    relations: str = "all"
    relation_weight: PositiveFloat = 0.1

    @property
    def needs(self) -> Needs:
        return Needs(relations=self.relations, pairs=True)

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, self.name)
        if batch.relations is None:
            return batch.cosines.new_zeros(len(batch))
        return self.relation_weight * relation_losses(batch.relations)


def relation_losses(relations: Relations) -> Tensor:
    """Return per pair the sum over relations of weight times binary cross-entropy; an unknown label costs nothing.

    The paper's eq. 2 omits the minus sign.
    """
    unknown_BR = relations.labels.isnan()
    labels_BR = relations.labels.masked_fill(unknown_BR, 0.0)
    costs_BR = F.binary_cross_entropy_with_logits(relations.logits, labels_BR, reduction="none")
    return torch.sum(relations.weights * costs_BR.masked_fill(unknown_BR, 0.0), dim=1)
