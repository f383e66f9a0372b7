"""NoStruct (Hessel 2019, 3.3): one random sentence and one random image stand for a document.

Their cosine is the document's similarity. The draw's stream is keyed by seed, split, document id, epoch and step, so
it does not depend on who holds the document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from training.config import ObjectiveConfig
from training.data.documents import Int64
from training.data.streams import stream
from training.host_arrays import to_device
from training.objectives.batch import Choice, EncodedBatch, Moment, Ragged
from training.objectives.cross_document import cross_document_losses


@dataclass(frozen=True, slots=True)
class NoStruct:
    """The objective: the cross-document loss over cosines of single rows, times `cosine_scale`."""

    config: ObjectiveConfig
    seed: int

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        draws = np.array([self._draw(documents.ids[row], moment) for row in rows]).reshape(-1, 2)
        sentence_counts = np.diff(documents.sentence_offsets)[rows]
        image_counts = np.diff(documents.image_offsets)[rows]
        one_each = np.ones(len(rows), dtype=np.int64)
        return Choice(
            sentences=documents.sentence_offsets[rows] + (draws[:, 0] * sentence_counts).astype(np.int64),
            sentence_counts=one_each,
            images=documents.image_offsets[rows] + (draws[:, 1] * image_counts).astype(np.int64),
            image_counts=one_each,
        )

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the losses over the drawn rows; of a batch that holds those alone, the draw is the same again."""
        drawn = self.choose(batch, np.arange(len(batch)), batch.moment)
        rows, columns = (to_device(chosen, batch.texts.device) for chosen in (drawn.sentences, drawn.images))
        cosines_BB = batch.cosines.index_select(0, rows).index_select(1, columns)
        return cross_document_losses(
            self.config.cosine_scale * cosines_BB,
            batch.allowed,
            margin=self.config.margin,
            negatives=self.config.negatives,
            loss=self.config.loss,
        )

    def _draw(self, document: str, moment: Moment) -> tuple[float, float]:
        """Return two uniform numbers in [0, 1)."""
        numbers = stream("nostruct", self.seed, moment.split, document, moment.epoch, moment.step).random(2)
        return float(numbers[0]), float(numbers[1])
