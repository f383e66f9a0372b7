"""Dropout sub-document loss (Li 2022, eq. 3-4): a random part of a document against whole other documents.

Which part is drawn anew at every step, from a stream keyed by seed, split, document id, epoch and step.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from training.data.ragged import Int64, to_device
from training.data.sampling import Choice, Documents
from training.data.streams import stream
from training.objectives.batch import EncodedBatch, Moment, Objective
from training.objectives.cross_document import cross_document_losses, negatives_at
from training.similarity.sets import own_similarity


def sub_documents(documents: Documents, chosen: Int64, moment: Moment, *, kept_share: float, seed: int) -> Choice:
    """Return `floor(kept_share * n)` sentences and as many of the images of some documents, at least one of each.

    They are drawn uniformly without replacement, and stay in document order.
    """
    sentences: list[Int64] = []
    images: list[Int64] = []
    for document in chosen.tolist():
        numbers = stream("sub-document", seed, moment.split, documents.ids[document], moment.epoch, moment.step)
        sentences.append(_part(numbers, documents.sentences.rows(document), kept_share))
        images.append(_part(numbers, documents.images.rows(document), kept_share))
    return Choice.of(documents, chosen, sentences, images)


def _part(numbers: np.random.Generator, rows: slice, kept_share: float) -> Int64:
    count = rows.stop - rows.start
    kept = max(1, int(np.floor(round(kept_share * count, 9))))
    part: Int64 = np.sort(numbers.permutation(count)[:kept]) + rows.start
    return part


class DropoutSubdocument(Objective):
    """The objective: the cross-document loss with the sub-document as the positive, and half the margin."""

    def losses(self, batch: EncodedBatch) -> Tensor:
        return cross_document_losses(
            batch.similarity(self.config),
            batch.allowed,
            margin=self.config.margin / 2,
            negatives=negatives_at(batch.moment, self.config),
            loss=self.config.loss,
            own_B=self._parts_similarity(batch),
        )

    def _parts_similarity(self, batch: EncodedBatch) -> Tensor:
        """Return the B similarities of the sub-documents' own sentences and images."""
        config, device = self.config, batch.cosines.device
        parts = sub_documents(batch, np.arange(len(batch)), batch.moment, kept_share=config.kept_share, seed=self.seed)
        rows, columns = to_device(parts.sentence_rows, device), to_device(parts.image_rows, device)
        return own_similarity(
            batch.cosines.index_select(0, rows).index_select(1, columns),
            parts.sentences,
            parts.images,
            config.similarity,
            k=config.k,
            combine=config.combine,
            matching=config.matching,
            solver=config.solver,
        )
