"""Coherence-aware loss (Alikhani 2022, eq. 2-3): the relations of a pair, predicted from its two vectors.

The head that predicts them is part of the model (`training.relations`); here is its loss alone, the second summand of
eq. 3. Relations are the only labels that training reads, in the training split, for this objective.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.config import ObjectiveName
from training.objectives.batch import EncodedBatch, Objective, Relations
from training.objectives.pair_retrieval import check_pairs


def relation_losses(relations: Relations) -> Tensor:
    """Return per pair the sum over relations of weight times binary cross-entropy; an unknown label costs nothing.

    The paper's eq. 2 omits the minus sign.
    """
    unknown_BR = relations.labels.isnan()
    labels_BR = relations.labels.masked_fill(unknown_BR, 0.0)
    costs_BR = F.binary_cross_entropy_with_logits(relations.logits, labels_BR, reduction="none")
    return torch.sum(relations.weights * costs_BR.masked_fill(unknown_BR, 0.0), dim=1)


class Coherence(Objective):
    """The term: `relation_weight` times the relations' loss; 0 where a split's relations are not read (validation)."""

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, ObjectiveName.COHERENCE)
        if batch.relations is None:
            return batch.cosines.new_zeros(len(batch))
        return self.config.relation_weight * relation_losses(batch.relations)
