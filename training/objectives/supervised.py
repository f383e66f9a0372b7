"""Supervised loss: what the objectives without links could reach at most (Li 2022, figure 5).

The one objective that is shown links, of `labelled_share` of the training documents. No other reads
`EncodedBatch.links`, and they are None unless this one is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.config import ObjectiveConfig
from training.data.documents import Int64
from training.host_arrays import to_device
from training.objectives.batch import Choice, EncodedBatch, Moment, Ragged, choose_all


def link_loss(matrix_nm: Tensor, links: Int64, *, margin: float) -> Tensor:
    """Return a document's loss: each link against the unlinked pairs of its row and of its column; a scalar.

    A link `(i, j)` costs `max(0, margin - M_ij + M_ih)` for the hardest image `h` that sentence `i` is not linked to,
    plus `max(0, margin - M_ij + M_hj)` for the hardest sentence `h` that image `j` is not linked to; the loss is the
    mean over links. Li 2022 does not give the loss of its supervised model: this is that of eq. 1, pair by pair.

    Args:
        matrix_nm: similarities of sentences and images.
        links: L x 2 (sentence, image); without any, the loss is 0.
        margin: of the hinges.
    """
    if not len(links):
        return matrix_nm.new_zeros(())
    rows_L, columns_L = to_device(links, matrix_nm.device).unbind(dim=1)
    linked_nm = torch.zeros(matrix_nm.shape, dtype=torch.bool, device=matrix_nm.device)
    linked_nm[rows_L, columns_L] = True
    unlinked_nm = matrix_nm.masked_fill(linked_nm, -torch.inf)
    own_L = matrix_nm[rows_L, columns_L]
    over_images_L = torch.relu(margin - own_L + unlinked_nm.amax(dim=1)[rows_L])
    over_sentences_L = torch.relu(margin - own_L + unlinked_nm.amax(dim=0)[columns_L])
    return (over_images_L + over_sentences_L).mean()


@dataclass(frozen=True, slots=True)
class Supervised:
    """The objective; a document whose links are not shown costs nothing."""

    config: ObjectiveConfig

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        return choose_all(documents, rows)

    def losses(self, batch: EncodedBatch) -> Tensor:
        shown = batch.links or (None,) * len(batch)
        return torch.stack([self._loss(batch, place, links) for place, links in enumerate(shown)])

    def _loss(self, batch: EncodedBatch, place: int, links: Int64 | None) -> Tensor:
        if links is None:
            return batch.cosines.new_zeros(())
        sentences = slice(*batch.sentence_offsets[place : place + 2].tolist())
        images = slice(*batch.image_offsets[place : place + 2].tolist())
        return link_loss(batch.cosines[sentences, images], links, margin=self.config.margin)
