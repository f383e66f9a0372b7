"""Which objective a configuration names. A new objective is a module of this package and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training.config import ObjectiveConfig, ObjectiveName
from training.objectives.batch import Objective
from training.objectives.cross_document import CrossDocument
from training.objectives.nostruct import NoStruct


def _cross_document(config: ObjectiveConfig, seed: int) -> Objective:
    return CrossDocument(config)


def _nostruct(config: ObjectiveConfig, seed: int) -> Objective:
    return NoStruct(config, seed)


OBJECTIVES: Mapping[ObjectiveName, Callable[[ObjectiveConfig, int], Objective]] = {
    ObjectiveName.CROSS_DOCUMENT: _cross_document,
    ObjectiveName.NOSTRUCT: _nostruct,
}


def build_objective(config: ObjectiveConfig, *, seed: int) -> Objective:
    """Return the objective a configuration names; `seed` keys its random draws."""
    return OBJECTIVES[config.name](config, seed)
