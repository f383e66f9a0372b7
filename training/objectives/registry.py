"""Which objective a configuration names. A new objective is a module of this package and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from training.config import ObjectiveConfig, ObjectiveName
from training.data.documents import Int64
from training.objectives.batch import Choice, EncodedBatch, Moment, Objective, Ragged, choose_all
from training.objectives.coherence import Coherence
from training.objectives.cross_document import CrossDocument
from training.objectives.dropout_subdocument import DropoutSubdocument
from training.objectives.intra_document import IntraDocument
from training.objectives.nostruct import NoStruct
from training.objectives.pair_retrieval import PAIR_LOSSES, PairRetrieval
from training.objectives.supervised import Supervised


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of objectives over the same batch (Li 2022, eq. 5; Alikhani 2022, eq. 3)."""

    terms: tuple[Objective, ...]

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        return choose_all(documents, rows)

    def losses(self, batch: EncodedBatch) -> Tensor:
        return torch.stack([term.losses(batch) for term in self.terms]).sum(dim=0)


def _cross_document(config: ObjectiveConfig, seed: int) -> Objective:
    return CrossDocument(config)


def _intra_document(config: ObjectiveConfig, seed: int) -> Objective:
    return IntraDocument(config)


def _dropout_subdocument(config: ObjectiveConfig, seed: int) -> Objective:
    return DropoutSubdocument(config, seed)


def _nostruct(config: ObjectiveConfig, seed: int) -> Objective:
    return NoStruct(config, seed)


def _pair_retrieval(name: ObjectiveName, config: ObjectiveConfig, seed: int) -> Objective:
    return PairRetrieval(config, name)


def _coherence(config: ObjectiveConfig, seed: int) -> Objective:
    return Coherence(config)


def _supervised(config: ObjectiveConfig, seed: int) -> Objective:
    return Supervised(config)


OBJECTIVES: Mapping[ObjectiveName, Callable[[ObjectiveConfig, int], Objective]] = {
    ObjectiveName.CROSS_DOCUMENT: _cross_document,
    ObjectiveName.INTRA_DOCUMENT: _intra_document,
    ObjectiveName.DROPOUT_SUBDOCUMENT: _dropout_subdocument,
    ObjectiveName.NOSTRUCT: _nostruct,
    **{name: partial(_pair_retrieval, name) for name in PAIR_LOSSES},
    ObjectiveName.COHERENCE: _coherence,
    ObjectiveName.SUPERVISED: _supervised,
}


def build_objective(config: ObjectiveConfig, *, seed: int) -> Objective:
    """Return the objective a configuration names, a sum where it names several; `seed` keys the random draws."""
    terms = tuple(OBJECTIVES[name](config, seed) for name in config.terms)
    return terms[0] if len(terms) == 1 else Sum(terms)
