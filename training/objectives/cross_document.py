"""Cross-document loss (Hessel 2019, eq. 1): a document's own sets against the other documents'."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.config import Negatives, ObjectiveConfig
from training.data.documents import Int64
from training.objectives.batch import Choice, EncodedBatch, Moment, Ragged, choose_all
from training.similarity import batch_similarity


def cross_document_losses(
    similarity_BB: Tensor, allowed_BB: Tensor, *, margin: float, negatives: Negatives = Negatives.HARDEST
) -> Tensor:
    """Return the B losses of a batch whose documents are each other's negatives.

    With `h(p, q) = max(0, margin - p + q)`, document `i` costs `h(s_ii, s_ij)` over other image sets `j`, plus
    `h(s_ii, s_ji)` over other sentence sets `j`: the largest of each (`hardest`) or the mean of each (`mean`).

    Args:
        similarity_BB: sentence set `i` against image set `j`.
        allowed_BB: symmetric; whether `j` is a negative of `i`. A document without any costs nothing.
        margin: of the hinge.
        negatives: how the hinges of a document's negatives are put together.
    """
    own_B = similarity_BB.diagonal()
    over_images_BB = torch.relu(margin - own_B[:, None] + similarity_BB).masked_fill(~allowed_BB, 0.0)
    over_sentences_BB = torch.relu(margin - own_B[None, :] + similarity_BB).masked_fill(~allowed_BB, 0.0)
    if negatives is Negatives.HARDEST:
        return over_images_BB.amax(dim=1) + over_sentences_BB.amax(dim=0)
    counts_B = allowed_BB.sum(dim=1).clamp(min=1)
    return (over_images_BB.sum(dim=1) + over_sentences_BB.sum(dim=0)) / counts_B


@dataclass(frozen=True, slots=True)
class CrossDocument:
    """The objective: all sentences and images of each document, similarity by configuration."""

    config: ObjectiveConfig

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        return choose_all(documents, rows)

    def losses(self, batch: EncodedBatch) -> Tensor:
        similarity_BB = batch_similarity(
            batch.texts,
            batch.images,
            batch.text_offsets,
            batch.image_offsets,
            self.config.similarity,
            k=self.config.k,
            combine=self.config.combine,
            matching=self.config.matching,
        )
        return cross_document_losses(
            similarity_BB, batch.allowed, margin=self.config.margin, negatives=self.config.negatives
        )
