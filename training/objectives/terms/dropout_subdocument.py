"""Dropout sub-document loss (Li 2022, eq. 3-4): a random part of a document against whole other documents.

Which part is drawn anew at every step, from a stream keyed by seed, split, document id, epoch and step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from schemas.configs import Share
from training.data.ragged import Int64, to_device
from training.data.sampling import Choice, Documents
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.terms.cross_document import CrossDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class DropoutSubdocument(CrossDocument):
    """L eq. 3-4: the cross-document loss with a sub-document as the positive, and half the margin.

    Attributes:
        kept_share: p, the share of sentences and images that a sub-document keeps (L: 0.6 for story-dii and story-sis,
            0.8 for mscoco).
    """

    place = 3
    spellings: ClassVar[Mapping[str, str]] = {"dropout": "dropout-subdocument"}
    name: str = "dropout-subdocument"
    kept_share: Share = 0.6

    def losses(self, batch: EncodedBatch) -> Tensor:
        own_B = self._parts_similarity(batch)
        return self.ranked(batch.similarity(self.similarity), batch, margin=self.margin / 2, own_B=own_B)

    def _parts_similarity(self, batch: EncodedBatch) -> Tensor:
        """Return the B similarities of the sub-documents' own sentences and images."""
        parts = sub_documents(batch, np.arange(len(batch)), batch.draw_key, kept_share=self.kept_share)
        rows, columns = (to_device(each, batch.cosines.device) for each in (parts.sentence_rows, parts.image_rows))
        matrix = batch.cosines.index_select(0, rows).index_select(1, columns)
        return self.similarity.own(matrix, parts.sentences, parts.images)


def sub_documents(documents: Documents, chosen: Int64, draw_key: DrawKey, *, kept_share: float) -> Choice:
    """Return `floor(kept_share * n)` sentences and as many of the images of some documents, at least one of each.

    They are drawn uniformly without replacement, and stay in document order.
    """
    sentences: list[Int64] = []
    images: list[Int64] = []
    for document in chosen.tolist():
        numbers = draw_key.numbers("sub-document", documents.ids[document])
        sentences.append(_part(numbers, documents.sentences.rows(document), kept_share))
        images.append(_part(numbers, documents.images.rows(document), kept_share))
    return Choice.of(documents, chosen, sentences, images)


def _part(numbers: np.random.Generator, rows: slice, kept_share: float) -> Int64:
    count = rows.stop - rows.start
    kept = max(1, int(np.floor(round(kept_share * count, 9))))
    part: Int64 = np.sort(numbers.permutation(count)[:kept]) + rows.start
    return part
