"""The objective `info-nce`: of all image sets of the batch, the own one is the right answer (van den Oord et al. 2018).

multilink train ... --set objective.name=info-nce --set objective.options=temperature=0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from training.objectives.batch import EncodedBatch, Objective


class InfoNce(Objective):
    """Cross-entropy of a document's own sets among those of the batch, in both directions; the mean of the two."""

    reads = ("similarity", "k", "matching", "solver", "combine")
    options: ClassVar[Mapping[str, float]] = {"temperature": 0.07}

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses of a batch of B documents."""
        logits = batch.similarity(self.config) / self.config.option("temperature")
        own = torch.eye(len(batch), dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(~(batch.allowed | own), -torch.inf)
        to_images, to_sentences = (each.log_softmax(dim=1).diagonal() for each in (logits, logits.T))
        return -(to_images + to_sentences) / 2
