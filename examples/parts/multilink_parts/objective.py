"""The objective `info-nce`: of all image sets of the batch, the own one is the right answer (van den Oord et al. 2018).

multilink train ... --set objective.name=info-nce --set objective.temperature=0.1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from schemas.plugins import SIMILARITIES
from training.objectives.batch import EncodedBatch
from training.objectives.term import Term
from training.similarity.similarity import Ap, SetSimilarity


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoNce(Term):
    """Cross-entropy of a document's own sets among those of the batch, in both directions; the mean of the two.

    Attributes:
        similarity: of a sentence set and an image set.
        temperature: what similarities are divided by.
    """

    name: str = "info-nce"
    similarity: Annotated[SetSimilarity, SIMILARITIES] = field(default_factory=Ap)
    temperature: PositiveFloat = 0.07

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses of a batch of B documents."""
        logits = batch.similarity(self.similarity) / self.temperature
        own = torch.eye(len(batch), dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(~(batch.allowed | own), -torch.inf)
        to_images, to_sentences = (each.log_softmax(dim=1).diagonal() for each in (logits, logits.T))
        return -(to_images + to_sentences) / 2
