"""NoStruct (Hessel 2019, 3.3): one random sentence and one random image stand for a document.

Their cosine is the document's similarity. The draw's stream is keyed by seed, split, document id, epoch and step, so
it does not depend on who holds the document.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from training.data.ragged import Int64, Ragged, to_device
from training.data.sampling import Choice, Documents
from training.data.streams import stream
from training.objectives.batch import EncodedBatch, Moment, Objective
from training.objectives.cross_document import cross_document_losses, negatives_at


class NoStruct(Objective):
    """The objective: the cross-document loss over cosines of single rows, times `cosine_scale`."""

    def choose(self, documents: Documents, chosen: Int64, moment: Moment) -> Choice:
        draws = np.array([self._draw(documents.ids[document], moment) for document in chosen]).reshape(-1, 2)
        one_each = Ragged.of(np.ones(len(chosen), np.int64))
        rows = [
            sets.offsets[chosen] + (draw * sets.counts[chosen]).astype(np.int64)
            for sets, draw in zip((documents.sentences, documents.images), draws.T, strict=True)
        ]
        return Choice(
            ids=tuple(documents.ids[document] for document in chosen),
            sentences=one_each,
            images=one_each,
            sentence_rows=rows[0],
            image_rows=rows[1],
        )

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the losses over the drawn rows; of a batch that holds those alone, the draw is the same again."""
        drawn = self.choose(batch, np.arange(len(batch)), batch.moment)
        rows, columns = (to_device(each, batch.cosines.device) for each in (drawn.sentence_rows, drawn.image_rows))
        cosines_BB = batch.cosines.index_select(0, rows).index_select(1, columns)
        return cross_document_losses(
            self.config.cosine_scale * cosines_BB,
            batch.allowed,
            margin=self.config.margin,
            negatives=negatives_at(batch.moment, self.config),
            loss=self.config.loss,
        )

    def _draw(self, document: str, moment: Moment) -> tuple[float, float]:
        """Return two uniform numbers in [0, 1)."""
        numbers = stream("nostruct", self.seed, moment.split, document, moment.epoch, moment.step).random(2)
        return float(numbers[0]), float(numbers[1])
