"""The batch-hard triplet loss that Alikhani 2022's code trained."""

from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.pairs import PairTerm

SMALLEST_SQUARE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class EuclideanBatchHard(PairTerm):
    """Batch-hard triplets over the Euclidean distances of the 2B joint embeddings.

    Attributes:
        margin: alpha of the hinges (A: 0.3).
    """

    place = 9
    name: str = "euclidean-batch-hard"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        vectors = batch.text_vectors, batch.image_vectors
        return euclidean_batch_hard_losses(*vectors, batch.allowed, margin=self.margin)


def euclidean_batch_hard_losses(texts_BD: Tensor, images_BD: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the batch-hard triplet loss over the 2B joint embeddings, what Alikhani 2022's code trained.

    Each text and each image is an anchor: its positive is the other half of its pair, its negative the nearest text or
    image of another pair. A pair costs the mean of its two anchors; one without a negative costs nothing.
    """
    all_AD = torch.cat([texts_BD, images_BD])
    distances_AA = (2 - 2 * (all_AD @ all_AD.T)).clamp(min=SMALLEST_SQUARE).sqrt()
    pairs = len(texts_BD)
    to_own_A = distances_AA.diagonal(pairs).repeat(2)
    nearest_A = distances_AA.masked_fill(~allowed_BB.repeat(2, 2), torch.inf).amin(dim=1)
    return torch.relu(margin + to_own_A - nearest_A).view(2, pairs).mean(dim=0)
