"""Which objective a configuration names. A new objective is a module of this package and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.config import ObjectiveConfig, ObjectiveName
from training.objectives.batch import EncodedBatch, Objective
from training.objectives.coherence import Coherence
from training.objectives.cross_document import CrossDocument
from training.objectives.dropout_subdocument import DropoutSubdocument
from training.objectives.intra_document import IntraDocument
from training.objectives.nostruct import NoStruct
from training.objectives.pair_retrieval import EuclideanBatchHard, Hal, Order, TripletHardest, TripletSum
from training.objectives.supervised import Supervised

OBJECTIVES: Mapping[ObjectiveName, type[Objective]] = {
    ObjectiveName.CROSS_DOCUMENT: CrossDocument,
    ObjectiveName.INTRA_DOCUMENT: IntraDocument,
    ObjectiveName.DROPOUT_SUBDOCUMENT: DropoutSubdocument,
    ObjectiveName.NOSTRUCT: NoStruct,
    ObjectiveName.TRIPLET_HARDEST: TripletHardest,
    ObjectiveName.TRIPLET_SUM: TripletSum,
    ObjectiveName.HAL: Hal,
    ObjectiveName.ORDER: Order,
    ObjectiveName.EUCLIDEAN_BATCH_HARD: EuclideanBatchHard,
    ObjectiveName.COHERENCE: Coherence,
    ObjectiveName.SUPERVISED: Supervised,
}


@dataclass(frozen=True)
class Sum(Objective):
    """A sum of objectives over the same batch (Li 2022, eq. 5; Alikhani 2022, eq. 3)."""

    terms: tuple[Objective, ...] = ()

    def losses(self, batch: EncodedBatch) -> Tensor:
        return torch.stack([term.losses(batch) for term in self.terms]).sum(dim=0)


def build_objective(config: ObjectiveConfig, *, seed: int) -> Objective:
    """Return the objective a configuration names, a sum where it names several; `seed` keys the random draws."""
    terms = tuple(OBJECTIVES[name](config, seed) for name in config.terms)
    return terms[0] if len(terms) == 1 else Sum(config, seed, terms)
