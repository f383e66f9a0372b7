"""What was done before: the run that a configuration had on a data set version, the models of a version, the aliases.

A scheduler asks here before it trains, so that a step that was killed is continued and one that was done is not done
twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlflow

from schemas.errors import UsageError
from training.config import TrainConfig
from training.registry.promote import DECISION_TAG
from training.registry.starting import pin_start
from training.registry.store import CHALLENGER, CHAMPION, ModelVersion, alias_holder, model_names, versions_of_run
from training.tracking import DATASET_TAG, VERSION_TAG, TrackedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run of one configuration on one data set version; `version` is its model, once that was registered."""

    id: str
    status: str
    version: ModelVersion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a registered model stands.

    Attributes:
        trained_on: data set versions it has a model of.
        challenger: version with that alias.
        challenger_data: data set version the challenger was trained on.
        is_judged: whether the challenger's promotion has been decided.
        champion: version with that alias.
    """

    trained_on: frozenset[str] = frozenset()
    challenger: str | None = None
    challenger_data: str | None = None
    is_judged: bool = False
    champion: str | None = None


def earlier_run(client: mlflow.MlflowClient, config: TrainConfig, dataset: str, version: str) -> EarlierRun | None:
    """Return the newest run with exactly this configuration on `dataset`@`version`, one with a model first.

    Aliases in `training.start_from` count as the versions they stand for now.
    """
    config = pin_start(config, client)
    experiment = client.get_experiment_by_name(f"multilink-{dataset}")
    if experiment is None:
        return None
    wanted = f"tags.{DATASET_TAG} = '{dataset}' and tags.{VERSION_TAG} = '{version}'"
    found: list[EarlierRun] = []
    for run in client.search_runs([experiment.experiment_id], wanted, order_by=["attributes.start_time DESC"]):
        if _config(client, run) == config:
            models = versions_of_run(client, run.info.run_id)
            model = models[0] if models else None
            found.append(EarlierRun(id=run.info.run_id, status=run.info.status, version=model))
    return min(found, key=_has_no_model, default=None)


def models_of(client: mlflow.MlflowClient, name: str, dataset_version: str) -> list[ModelVersion]:
    """Return the versions of a registered model that were trained on a data set version, newest first."""
    found = client.search_model_versions(f"name = '{name}' and tags.{VERSION_TAG} = '{dataset_version}'")
    versions = [
        ModelVersion(name=name, version=str(each.version), run_id=each.run_id or None, tags=dict(each.tags))
        for each in found
    ]
    return sorted(versions, key=_number, reverse=True)


def standing(client: mlflow.MlflowClient, name: str) -> Standing:
    """Return how a registered model stands; one that is not there stands nowhere."""
    if name not in model_names(client):
        return Standing()
    found = client.search_model_versions(f"name = '{name}'")
    challenger = alias_holder(client, name, CHALLENGER)
    champion = alias_holder(client, name, CHAMPION)
    is_champion = challenger is not None and champion is not None and challenger.version == champion.version
    return Standing(
        trained_on=frozenset(each.tags[VERSION_TAG] for each in found if VERSION_TAG in each.tags),
        challenger=None if challenger is None else challenger.version,
        challenger_data=None if challenger is None else challenger.tags.get(VERSION_TAG),
        is_judged=is_champion or (challenger is not None and DECISION_TAG in challenger.tags),
        champion=None if champion is None else champion.version,
    )


def run_page(client: mlflow.MlflowClient, page: str, run_id: str) -> str:
    """Return the address of a run on MLflow's page."""
    return f"{page.rstrip('/')}/#/experiments/{client.get_run(run_id).info.experiment_id}/runs/{run_id}"


def _config(client: mlflow.MlflowClient, run: mlflow.entities.Run) -> TrainConfig | None:
    """Return the configuration of a run, or None where there is none this code can read."""
    try:
        return TrackedRun(client, run.info.run_id, run.data.tags).config()
    except UsageError:
        return None


def _has_no_model(run: EarlierRun) -> bool:
    return run.version is None


def _number(version: ModelVersion) -> int:
    return int(version.version)
