"""Dropout sub-document loss (Li 2022, eq. 3-4): a random part of a document against whole other documents.

Which part is drawn anew at every step, from a stream keyed by seed, split, document id, epoch and step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from training.config import ObjectiveConfig
from training.data.documents import Int64
from training.data.streams import stream
from training.host_arrays import to_device
from training.objectives.batch import Choice, EncodedBatch, Moment, Ragged, choose_all
from training.objectives.cross_document import cross_document_losses, negatives_at
from training.similarity import own_similarity


def sub_documents(documents: Ragged, rows: Int64, moment: Moment, *, kept_share: float, seed: int) -> Choice:
    """Return `floor(kept_share * n)` sentences and as many of the images of each document, at least one of each.

    They are drawn uniformly without replacement, and stay in document order.
    """
    sentence_counts = np.diff(documents.sentence_offsets)[rows]
    image_counts = np.diff(documents.image_offsets)[rows]
    sentences: list[Int64] = []
    images: list[Int64] = []
    for row, n, m in zip(rows.tolist(), sentence_counts.tolist(), image_counts.tolist(), strict=True):
        numbers = stream("sub-document", seed, moment.split, documents.ids[row], moment.epoch, moment.step)
        sentences.append(documents.sentence_offsets[row] + _part(numbers, n, kept_share))
        images.append(documents.image_offsets[row] + _part(numbers, m, kept_share))
    return Choice(
        sentences=np.concatenate([np.zeros(0, np.int64), *sentences]),
        sentence_counts=np.array([len(part) for part in sentences], dtype=np.int64),
        images=np.concatenate([np.zeros(0, np.int64), *images]),
        image_counts=np.array([len(part) for part in images], dtype=np.int64),
    )


def _part(numbers: np.random.Generator, count: int, kept_share: float) -> Int64:
    kept = max(1, int(np.floor(round(kept_share * count, 9))))
    return np.sort(numbers.permutation(count)[:kept])


@dataclass(frozen=True, slots=True)
class DropoutSubdocument:
    """The objective: the cross-document loss with the sub-document as the positive, and half the margin."""

    config: ObjectiveConfig
    seed: int

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        return choose_all(documents, rows)

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
        rows, columns = to_device(parts.sentences, device), to_device(parts.images, device)
        return own_similarity(
            batch.cosines.index_select(0, rows).index_select(1, columns),
            parts.sentence_offsets,
            parts.image_offsets,
            config.similarity,
            k=config.k,
            combine=config.combine,
            matching=config.matching,
        )
