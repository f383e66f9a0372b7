"""Order embeddings (Vendrov et al. 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.pairs import PairTerm, triplet_sum_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(PairTerm):
    """Vendrov et al. 2016, eq. 2 and 3, over unit vectors without negative coordinates.

    Attributes:
        margin: alpha of the hinges (Vendrov et al. 2016: 0.05).
    """

    drops_signs = True
    place = 8
    name: str = "order"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return order_losses(batch.text_vectors, batch.image_vectors, batch.allowed, margin=self.margin)


def order_losses(texts_BD: Tensor, images_BD: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of order embeddings in both directions (Vendrov et al. 2016, eq. 2 and 3).

    A text is more abstract than its image, and so below it in every coordinate; a pair's similarity is minus the
    squared length of what the text has above the image. The vectors are unit vectors without negative coordinates
    (`LinkModel`): the violations of both directions add up to 2 (1 - cosine), and by the cosine models are judged here.
    """
    violations_BB = torch.relu(texts_BD[:, None] - images_BD[None]).square().sum(dim=2)
    return triplet_sum_losses(-violations_BB, allowed_BB, margin=margin)
