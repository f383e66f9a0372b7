import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import lakes
import mlflow
import pytest
import torch
from registries import Registry

from schemas.lake import Lake
from training.model import LinkModel


@pytest.fixture(scope="session")
def registry_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("registry") / "lake"
    return lakes.write_lake(root, lakes.splits(train=60, val=30, test=30))


@pytest.fixture(scope="session")
def trained(registry_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to link, as a folder."""
    return lakes.learn(lakes.TINY, registry_lake, tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def other_model(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Make a folder with the trained model of which a weight is larger by a number of hundred thousandths."""

    @cache
    def make(number: int) -> Path:
        model = LinkModel.load(trained)
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 1e-5 * number
        folder = tmp_path_factory.mktemp("other") / str(number)
        model.save(folder)
        return folder

    return make


@pytest.fixture
def other_files(other_model: Callable[[int], Path]) -> Callable[[], Path]:
    """Return a folder with the trained model whose files are others each time."""
    numbers = itertools.count(1)
    return lambda: other_model(next(numbers))


@pytest.fixture(scope="session")
def untrained(registry_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, as a folder."""
    target = tmp_path_factory.mktemp("untrained") / "model"
    lakes.untrained(lakes.TINY, registry_lake).save(target)
    return target


@pytest.fixture(scope="session")
def registry(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    registry = Registry(tmp_path_factory.mktemp("store") / "store", tmp_path_factory.mktemp("kept"), template)
    yield registry
    registry.database.close()


@pytest.fixture
def client(registry: Registry) -> mlflow.MlflowClient:
    """A client of an empty store."""
    return registry.reset()


@pytest.fixture
def register_model(
    client: mlflow.MlflowClient, registry: Registry, registry_lake: Lake
) -> Iterator[Callable[[Path], str]]:
    """Register a folder's model as the next version of `linker`, as training does; return the version."""
    from training.mlflow.registering import register

    def register_next(folder: Path) -> None:
        found = client.get_experiment_by_name("multilink-synthetic")
        location = (registry.folder / "mlartifacts").as_uri()
        experiment = found.experiment_id if found else client.create_experiment("multilink-synthetic", location)
        run = client.create_run(experiment)
        tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": registry_lake.root.uri}
        register(client, folder, name="linker", run_id=run.info.run_id, tags=tags)

    def register_folder(folder: Path) -> str:
        registry.after(str(folder), lambda: register_next(folder))
        return str(client.search_model_versions("name='linker'", order_by=["version_number DESC"])[0].version)

    yield register_folder
    registry_lake.promotions("linker").remove()  # the next test has a registry of its own


@pytest.fixture
def registered(register_model: Callable[[Path], str], trained: Path) -> str:
    """Register the trained model as version 1 of `linker`."""
    return register_model(trained)
