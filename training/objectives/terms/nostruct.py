"""NoStruct (Hessel 2019, 3.3): one random sentence and one random image stand for a document.

Their cosine is the document's similarity. The draw's stream is keyed by seed, split, document id, epoch and step, so
it does not depend on who holds the document.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from schemas.configs import PositiveFloat
from training.data.ragged import Int64, Ragged, to_device
from training.data.sampling import Choice, Documents
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.negatives import Negatives, RankingTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStruct(RankingTerm):
    """H 3.3: the cross-document loss over cosines of single rows.

    Negatives count by their mean unless set otherwise (H tables 2 and 3: the hardest collapse).

    Attributes:
        cosine_scale: the document similarity is this times the cosine (paper: 1; H's code: 2).
    """

    place = 4
    name: str = "nostruct"
    negatives: Negatives = Negatives.MEAN
    cosine_scale: PositiveFloat = 1.0

    def choose(self, documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice:
        draws = np.array([draw_key.numbers("nostruct", documents.ids[row]).random(2) for row in chosen]).reshape(-1, 2)
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
        drawn = self.choose(batch, np.arange(len(batch)), batch.draw_key)
        rows, columns = (to_device(each, batch.cosines.device) for each in (drawn.sentence_rows, drawn.image_rows))
        cosines_BB = batch.cosines.index_select(0, rows).index_select(1, columns)
        return self.ranked(self.cosine_scale * cosines_BB, batch)
