"""Cross-document loss (Hessel 2019, eq. 1): a document's own sets against the other documents'."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from torch import Tensor

from schemas.plugins import SIMILARITIES
from training.objectives.batch import EncodedBatch
from training.objectives.negatives import RankingTerm
from training.similarity.kinds.ap import Ap
from training.similarity.similarity import SetSimilarity


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossDocument(RankingTerm):
    """H eq. 1: all sentences and images of each document against those of the others.

    Attributes:
        similarity: of a sentence set and an image set.
    """

    place = 1
    spellings: ClassVar[Mapping[str, str]] = {"cross": "cross-document"}
    name: str = "cross-document"
    similarity: Annotated[SetSimilarity, SIMILARITIES] = field(default_factory=Ap)

    def losses(self, batch: EncodedBatch) -> Tensor:
        return self.ranked(batch.similarity(self.similarity), batch)
