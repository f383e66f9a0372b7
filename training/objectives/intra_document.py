"""Intra-document loss (Li 2022, eq. 2): what belongs together most in a document against what does least."""

from __future__ import annotations

import torch
from torch import Tensor

from training.config import Similarity
from training.objectives.batch import EncodedBatch, Objective
from training.similarity.sets import own_similarity


class IntraDocument(Objective):
    """The objective: `max(0, alpha/2 - TK(M) + NegTK(M))` of each document's own matrix, whatever the similarity."""

    def losses(self, batch: EncodedBatch) -> Tensor:
        most_B, least_B = self._own(batch, Similarity.TK), self._own(batch, Similarity.NEG_TK)
        return torch.relu(self.config.margin / 2 - most_B + least_B)

    def _own(self, batch: EncodedBatch, kind: Similarity) -> Tensor:
        return own_similarity(
            batch.cosines, batch.sentences, batch.images, kind, k=self.config.k, combine=self.config.combine
        )
