"""Models of the registry that a run starts from (`training.start_from`): which versions, and copies for the workers.

Only the driver knows the registry. It pins an alias to the version it stands for before the run begins, so that the
run's configuration says what it started from, and leaves copies in the run's folder in the lake, where every worker
finds them (`training.runs.fetch_start`).
"""

from __future__ import annotations

import dataclasses

import mlflow

from schemas.errors import NotFoundError
from schemas.lake import Folder
from training.config import TrainConfig
from training.loop.starting import SOURCE_SIGN, split_start
from training.registry.loading import download, registered_name
from training.registry.store import find_version
from training.runs import has_start, is_address, store_start


def pin_start(config: TrainConfig, client: mlflow.MlflowClient) -> TrainConfig:
    """Return a configuration whose `training.start_from` names versions in place of aliases.

    Raises:
        NotFoundError: the registry has no such model, version or alias.
    """
    pinned = tuple(_pinned(item, client) for item in config.training.start_from)
    return dataclasses.replace(config, training=dataclasses.replace(config.training, start_from=pinned))


def keep_start(config: TrainConfig, run: Folder) -> None:
    """Copy the models that `training.start_from` names by an address into a run's folder; those there stay.

    Raises:
        NotFoundError: an address leads to no model.
    """
    for item in config.training.start_from:
        _, address = split_start(item)
        if is_address(address) and not has_start(run, address):
            store_start(run, address, download(address, option="training.start_from"))


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
