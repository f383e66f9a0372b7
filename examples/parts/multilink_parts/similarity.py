"""The similarity `mean`: the mean of all cosines of a document's sentences with its images.

multilink train ... --set objective.similarity.name=mean
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.ragged import Ragged, to_device
from training.similarity.similarity import SetSimilarity, own_blocks, segment_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(SetSimilarity):
    """The mean over all pairs of a sentence and an image."""

    name: str = "mean"

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B x C similarities of B sentence sets and C image sets."""
        by_image_set_CN = segment_mean(matrix_NM.T, images)
        return segment_mean(by_image_set_CN.T, sentences)

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B similarities of each sentence set and its own image set."""
        blocks_Bnm = own_blocks(matrix_NM, sentences, images)  # padded with -inf
        sums_B = torch.where(blocks_Bnm.isinf(), 0.0, blocks_Bnm).sum(dim=(1, 2))
        return sums_B / to_device(sentences.counts * images.counts, sums_B.device)
