"""What a run begins from: an earlier run with the same configuration, and the models that `training.start_from` names.

Only the driver knows the registry. It pins an alias to the version it stands for before the run begins, so that the
run's configuration says what it started from, and leaves copies in the run's folder in the lake, where every worker
finds them (`training.ray.run_folder.fetch_start`). A scheduler asks here before it trains, so that a step that was
killed is continued and one that was done is not done twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import mlflow

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder
from training.config import TrainConfig
from training.loop.starting import SOURCE_SIGN, split_start
from training.mlflow.loading import download, registered_name
from training.mlflow.registry import ModelVersion, find_version, versions
from training.mlflow.runs import DATASET_TAG, VERSION_TAG, TrackedRun
from training.ray.run_folder import has_start, is_address, store_start


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run of one configuration on one data set version; `version` is its model, once that was registered."""

    id: str
    status: str
    version: ModelVersion | None


def pin_start(config: TrainConfig, client: mlflow.MlflowClient) -> TrainConfig:
    """Return a configuration whose `training.start_from` names versions in place of aliases.

    Raises:
        NotFoundError: the registry has no such model, version or alias.
    """
    pinned = tuple(_pinned(item, client) for item in config.training.start_from)
    return replace(config, training=replace(config.training, start_from=pinned))


def keep_start(config: TrainConfig, run: Folder) -> None:
    """Copy the models that `training.start_from` names by an address into a run's folder; those there stay.

    Raises:
        NotFoundError: an address leads to no model.
    """
    for item in config.training.start_from:
        _, address = split_start(item)
        if is_address(address) and not has_start(run, address):
            with download(address, option="training.start_from") as folder:
                store_start(run, address, folder)


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
        with suppress(UsageError):  # a run without a configuration that this code can read
            if TrackedRun(client, run.info.run_id, run.data.tags).config() == config:
                models = versions(client, f"run_id = '{run.info.run_id}'")
                own = models[0] if models else None
                found.append(EarlierRun(id=run.info.run_id, status=run.info.status, version=own))
    return min(found, key=lambda run: run.version is None, default=None)


def _pinned(item: str, client: mlflow.MlflowClient) -> str:
    source, address = split_start(item)
    registered = registered_name(address)
    if registered is None:
        return item
    try:
        version = find_version(client, *registered)
    except NotFoundError as problem:
        raise NotFoundError(f"training.start_from = {address!r}: {problem}") from problem
    return f"{source}{SOURCE_SIGN}{version.uri}" if source else version.uri
