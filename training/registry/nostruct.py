"""The NoStruct model that stands beside another in its report: of the same data set version, newest first."""

from __future__ import annotations

import mlflow

from schemas.errors import IntegrityError, UsageError
from training.config import ObjectiveConfig, ObjectiveName, TrainConfig
from training.evaluation.beside import Rival
from training.registry.earlier import models_of
from training.registry.loading import LoadedModel, load_version
from training.registry.store import model_name


def nostruct_rival(client: mlflow.MlflowClient, loaded: LoadedModel, reference: str) -> Rival:
    """Return the newest NoStruct model that was trained on NAME@VERSION, or why there is none to set beside a model.

    Args:
        client: of the registry.
        loaded: the model that is judged.
        reference: what it is judged on.
    """
    nostruct = ObjectiveName.NOSTRUCT.value
    if loaded.model.card.config.objective.name == nostruct:
        return Rival(model=None, note="it is the model that is judged")
    dataset, _, version = reference.partition("@")
    name = model_name(dataset, TrainConfig(objective=ObjectiveConfig(name=nostruct)))
    found = models_of(client, name, version)
    if not found:
        return Rival(model=None, note=f"no model {name} of this data set version is registered")
    try:
        return Rival(model=load_version(found[0]).model, note=f"version {found[0].version}")
    except (UsageError, IntegrityError) as problem:
        return Rival(model=None, note=f"{found[0].uri} cannot be loaded: {problem}")
