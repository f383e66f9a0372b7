"""Which objective a configuration names: a module of this package and one line here, or one of another package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.errors import ConfigError
from schemas.plugins import OBJECTIVES as GROUP
from schemas.plugins import load_plugin, told
from training.config import ObjectiveConfig, ObjectiveName
from training.objectives.batch import EncodedBatch, Objective
from training.objectives.coherence import Coherence
from training.objectives.cross_document import CrossDocument
from training.objectives.dropout_subdocument import DropoutSubdocument
from training.objectives.intra_document import IntraDocument
from training.objectives.nostruct import NoStruct
from training.objectives.pair_retrieval import EuclideanBatchHard, Hal, Order, TripletHardest, TripletSum
from training.objectives.supervised import Supervised

OBJECTIVES: Mapping[str, type[Objective]] = {
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
    """Return the objective a configuration names, a sum where it names several; `seed` keys the random draws.

    Raises:
        ConfigError: one of another package cannot be loaded, or is no `Objective`.
    """
    terms = tuple((OBJECTIVES.get(name) or _of_plugin(name))(config, seed) for name in config.terms)
    return terms[0] if len(terms) == 1 else Sum(config, seed, terms)


def _of_plugin(name: str) -> type[Objective]:
    kind = load_plugin(GROUP, name)
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise ConfigError(
            f"{told(GROUP, name)}: expected a class of training.objectives.batch.Objective, found {kind!r}"
        )
    return kind
