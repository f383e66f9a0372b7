"""A model by its address: a registered version or name, a run, a run's model, or a folder on this machine.

A registered version's files are checked against the digest that the registry recorded.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from schemas.errors import NotFoundError, UsageError
from training.mlflow.registry import CHAMPION, MODEL_DIGEST_TAG, ModelVersion, find_version
from training.mlflow.runs import fetch_files
from training.model import LinkModel
from training.model_files import check_files

_REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:/|@)(?P<version>[^/@]+)")
_OF_RUN = re.compile(r"runs:/(?P<run>[^/]+)/.+")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_FORMS = "models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), RUN, runs:/RUN/model or a folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model and where it is from.

    Attributes:
        model: both towers.
        uri: its address, an alias resolved to the version it stood for.
        version: of the registry; None for a run's model or a folder.
        run_id: run that trained it, where known.
    """

    model: LinkModel
    uri: str
    version: ModelVersion | None = None
    run_id: str | None = None


def load(uri: str, client: mlflow.MlflowClient) -> LoadedModel:
    """Return the model at an address.

    Raises:
        NotFoundError: there is no such model, version, run or folder.
        UsageError: the address has none of the known forms.
        IntegrityError: the model's files are damaged, or not those that were registered.
    """
    uri = f"runs:/{uri}/model" if _RUN_ID.fullmatch(uri) else uri
    if registered := registered_name(uri):
        return load_version(find_version(client, *registered))
    if of_run := _OF_RUN.fullmatch(uri):
        with download(uri) as folder:
            return LoadedModel(model=LinkModel.load(folder), uri=uri, run_id=of_run["run"])
    if ":/" in uri:
        raise UsageError(f"--model {uri}: expected {_FORMS}")
    if Path(uri).is_dir():
        return LoadedModel(model=LinkModel.load(Path(uri)), uri=str(Path(uri).absolute()))
    try:
        return load_version(find_version(client, uri, CHAMPION))
    except NotFoundError as problem:
        raise NotFoundError(f"--model {uri}: no such folder, and {problem}; expected {_FORMS}") from problem


def load_version(version: ModelVersion) -> LoadedModel:
    """Return a registered version's model.

    Raises:
        NotFoundError: its files are not there.
        IntegrityError: they are not those that were registered.
    """
    with download(version.uri) as folder:
        check_files(folder, version.tags.get(MODEL_DIGEST_TAG))
        return LoadedModel(model=LinkModel.load(folder), uri=version.uri, version=version, run_id=version.run_id)


def registered_name(uri: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias) of a registered model's address, or None of another."""
    found = _REGISTERED.fullmatch(uri)
    return None if found is None else (found["name"], found["version"])


@contextmanager
def download(uri: str, *, option: str = "--model") -> Iterator[Path]:
    """Give a temporary folder with what `LinkModel.save` wrote into the logged model.

    Raises:
        NotFoundError: there is none; the message begins with `option`, which named it.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as scratch:
        try:
            folder = fetch_files(partial(mlflow.artifacts.download_artifacts, artifact_uri=uri, dst_path=scratch))
            flavour = Model.load(str(folder)).flavors["python_function"]
        except (MlflowException, OSError, KeyError) as problem:
            raise NotFoundError(f"{option} {uri}: no model of multilink there: {_reason(problem)}") from problem
        yield folder / str(flavour["data"])


def _reason(problem: Exception) -> str:
    """Return one line: of several files that MLflow could not bring, what became of the first."""
    first, *others = str(problem).splitlines() or [type(problem).__name__]
    return next((line for line in others if line and not line.startswith("#####")), first)
