"""All triplets (Liu 2020, eq. 1)."""

from dataclasses import dataclass

from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.pairs import PairTerm, triplet_sum_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletSum(PairTerm):
    """The sum of the hinges of all negatives, in both directions.

    Attributes:
        margin: alpha of the hinges.
    """

    place = 6
    name: str = "triplet-sum"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return triplet_sum_losses(batch.cosines, batch.allowed, margin=self.margin)
