"""Intra-document loss (Li 2022, eq. 2): what belongs together most in a document against what does least."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.config import ObjectiveConfig, Similarity
from training.data.documents import Int64
from training.objectives.batch import Choice, EncodedBatch, Moment, Ragged, choose_all
from training.similarity import own_similarity


@dataclass(frozen=True, slots=True)
class IntraDocument:
    """The objective: `max(0, alpha/2 - TK(M) + NegTK(M))` of each document's own matrix, whatever the similarity."""

    config: ObjectiveConfig

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        return choose_all(documents, rows)

    def losses(self, batch: EncodedBatch) -> Tensor:
        most_B, least_B = self._own(batch, Similarity.TK), self._own(batch, Similarity.NEG_TK)
        return torch.relu(self.config.margin / 2 - most_B + least_B)

    def _own(self, batch: EncodedBatch, kind: Similarity) -> Tensor:
        offsets = batch.sentence_offsets, batch.image_offsets
        return own_similarity(batch.cosines, *offsets, kind, k=self.config.k, combine=self.config.combine)
