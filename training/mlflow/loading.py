"""Reading a model back by its address: a registered version or name, a run, a run's model, or a folder on this machine.

A registered version's files are checked against the digest that the registry recorded.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from schemas.errors import NotFoundError, UsageError
from training.evaluation.class_names import CLASS_NAMES, class_names_model
from training.linking.links import Linker
from training.linking.options import DEFAULT_OPTIONS, LinkOptions
from training.loop.context import choose_device
from training.metrics.calibration import Calibration
from training.mlflow.moving import SQLITE
from training.mlflow.provenance import check_use
from training.mlflow.pyfunc import logged_calibration
from training.mlflow.registry import CHAMPION, MODEL_DIGEST_TAG, ModelVersion, champion_of_dataset, find_version
from training.mlflow.runs import connect, fetch_files, tracking_uri
from training.mlflow.taints import check_taint
from training.model import LinkModel
from training.model_files import check_files

_REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:/|@)(?P<version>[^/@]+)")
_OF_RUN = re.compile(r"runs:/(?P<run>[^/]+)/.+")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_FORMS = (
    f"models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), RUN, runs:/RUN/model, a folder or {CLASS_NAMES}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model and where it is from.

    Attributes:
        model: both towers.
        uri: its address, an alias resolved to the version it stood for.
        version: of the registry; None for a run's model or a folder.
        run_id: run that trained it, where known.
        calibration: of its evaluation on the data it was trained on; None before that.
    """

    model: LinkModel
    uri: str
    version: ModelVersion | None = None
    run_id: str | None = None
    calibration: Calibration | None = None

    @property
    def index_name(self) -> str:
        """Return the name under which the model's indexes lie: of the registry, else of its weights."""
        if self.version is not None:
            return f"{self.version.name}-{self.version.version}"
        return f"model-{self.model.digest()[:12]}"

    def linker(self, options: LinkOptions = DEFAULT_OPTIONS) -> Linker:
        """Return what links with the model: by its own calibration, where the options have none; raises as `Linker`."""
        return Linker(model=self.model, uri=self.uri, options=options.calibrated(self.calibration))


def open_registry(tracking: str | None, models: Iterable[str] | None = None) -> mlflow.MlflowClient:
    """Return a client of the store that models are read from; of a SQLite store, which is not made for that.

    Args:
        tracking: as `tracking_uri` takes it.
        models: addresses that will be loaded; where all are folders or `class-names`, no store is needed. None:
            registered ones.

    Raises:
        NotFoundError: no store is there.
        UsageError: it cannot be opened.
    """
    uri = tracking_uri(tracking)
    is_there = not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).is_file()
    needed = (model for model in models or () if model != CLASS_NAMES)
    registered = next((model for model in needed if ":/" in model or not Path(model).is_dir()), None)
    if not is_there and (models is None or registered is not None):
        folder = "" if ":/" in (registered or ":/") else "no such folder, and "
        which = "" if registered is None else f"--model {registered}: {folder}"
        raise NotFoundError(
            f"{which}{uri}: no runs and models are there; train a model, or name another --tracking-uri"
        )
    return connect(uri)


def load(uri: str, client: mlflow.MlflowClient) -> LoadedModel:
    """Return the model at an address.

    Raises:
        NotFoundError: there is no such model, version, run or folder.
        UsageError: the address has none of the known forms.
        IntegrityError: the model's files are damaged, or not those that were registered.
    """
    if uri == CLASS_NAMES:
        return _untrained()
    uri = f"runs:/{uri}/model" if _RUN_ID.fullmatch(uri) else uri
    if registered := registered_name(uri):
        return load_version(find_version(client, *registered))
    if of_run := _OF_RUN.fullmatch(uri):
        with download(uri) as folder:
            return LoadedModel(
                model=LinkModel.load(folder, choose_device()),
                uri=uri,
                run_id=of_run["run"],
                calibration=logged_calibration(folder),
            )
    if ":/" in uri:
        raise UsageError(f"--model {uri}: expected {_FORMS}")
    if Path(uri).is_dir():
        folder = Path(uri).absolute()
        return LoadedModel(
            model=LinkModel.load(folder, choose_device()), uri=str(folder), calibration=logged_calibration(folder)
        )
    try:
        return load_version(find_version(client, uri, CHAMPION))
    except NotFoundError as problem:
        raise NotFoundError(f"--model {uri}: no such folder, and {problem}; expected {_FORMS}") from problem


def open_model(address: str | None, tracking: str | None, *, dataset: str = "") -> LoadedModel:
    """Return the model at an address of a store; without one, the champion of the data set NAME[@VERSION].

    Raises:
        NotFoundError: as `load` and `champion_of_dataset` say.
        UsageError: likewise.
        IntegrityError: it must be proved champion (`provenance.py`), and is not.
        GateError: it was trained on what was taken out of its lake too long ago (`taints.py`).
    """
    if address == CLASS_NAMES:
        return _untrained()  # no store is opened, nor made
    client = open_registry(tracking, [address] if address else None)
    loaded = load(address or champion_of_dataset(client, dataset.partition("@")[0]).uri, client)
    if loaded.version is not None:
        check_taint(loaded.version)
        check_use(client, loaded.version)
    return loaded


def _untrained() -> LoadedModel:
    return LoadedModel(model=class_names_model(), uri=CLASS_NAMES)


def load_version(version: ModelVersion) -> LoadedModel:
    """Return a registered version's model.

    Raises:
        NotFoundError: its files are not there.
        IntegrityError: they are not those that were registered.
    """
    with download(version.uri) as folder:
        check_files(folder, version.tags.get(MODEL_DIGEST_TAG))
        return LoadedModel(
            model=LinkModel.load(folder, choose_device()),
            uri=version.uri,
            version=version,
            run_id=version.run_id,
            calibration=logged_calibration(folder),
        )


def registered_name(uri: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias) of a registered model's address, or None of another."""
    found = _REGISTERED.fullmatch(uri)
    return None if found is None else (found["name"], found["version"])


def run_of(client: mlflow.MlflowClient, uri: str) -> str:
    """Return the run that trained the model of an address.

    Raises:
        NotFoundError: there is no such model or run, or it is a folder's, which has none.
    """
    of_run = _OF_RUN.fullmatch(uri)
    registered = registered_name(uri)
    found = of_run["run"] if of_run else find_version(client, *registered).run_id if registered else None
    if found is None:
        raise NotFoundError(f"{uri}: no run of {client.tracking_uri} trained it")
    return str(found)


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
