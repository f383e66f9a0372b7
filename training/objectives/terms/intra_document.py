"""Intra-document loss (Li 2022, eq. 2): what belongs together most in a document against what does least."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.term import Term
from training.similarity.kinds.tk import Tk
from training.similarity.similarity import Combine, check_k


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraDocument(Term):
    """L eq. 2: `max(0, margin / 2 - TK(M) + NegTK(M))` of each document's own matrix M; `NegTK(M) = -TK(-M)`.

    Attributes:
        margin: alpha (L: 0.2), of which the hinge takes half.
        k: of TK (`objective.similarity.k` says what it can be).
        combine: of TK: whether its two means are summed (H) or averaged (L).
    """

    place = 2
    spellings: ClassVar[Mapping[str, str]] = {"intra": "intra-document"}
    name: str = "intra-document"
    margin: PositiveFloat = 0.2
    k: str = "min"
    combine: Combine = Combine.SUM

    def __post_init__(self) -> None:
        Term.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def losses(self, batch: EncodedBatch) -> Tensor:
        most = Tk(k=self.k, combine=self.combine)
        most_B = most.own(batch.cosines, batch.sentences, batch.images)
        least_B = -most.own(-batch.cosines, batch.sentences, batch.images)
        return torch.relu(self.margin / 2 - most_B + least_B)
