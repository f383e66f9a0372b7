"""Triplets of the hardest negatives (Alikhani 2022, eq. 1; VSE++: Liu 2020, eq. 4)."""

from dataclasses import dataclass

from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch
from training.objectives.negatives import cross_document_losses
from training.objectives.pairs import PairTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletHardest(PairTerm):
    """The hinge of each text's hardest image plus that of each image's hardest text.

    Alikhani 2022 writes `min` where `max` of the negated triplet is meant.

    Attributes:
        margin: alpha of the hinges (A: 0.3).
    """

    place = 5
    name: str = "triplet-hardest"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return cross_document_losses(batch.cosines, batch.allowed, margin=self.margin)
