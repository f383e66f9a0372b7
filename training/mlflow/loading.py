"""Reading a model back by its address: a registered version or name, a run, a run's model, or a folder on this machine.

A registered version's files are read once, into a folder of this process. Their digests are compared with the
promotion's, where there is one, and with the registry's; the model is made of what was read.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.model import MLMODEL_FILE_NAME
from yaml import YAMLError

from schemas.errors import NotFoundError, UsageError
from training.evaluation.class_names import CLASS_NAMES, class_names_model
from training.linking.links import Linker
from training.linking.options import DEFAULT_OPTIONS, LinkOptions
from training.loop.context import choose_device
from training.metrics.calibration import Calibration
from training.mlflow.pyfunc import logged_calibration, version_files
from training.mlflow.registry import ModelVersion, champion_of_dataset, find_version, registered
from training.mlflow.runs import connect, fetch_files
from training.mlflow.stored import FORMS, is_missing, no_address, registered_name, tracking_uri
from training.mlflow.use import check_address
from training.model import LinkModel
from training.model_files import check_files
from training.promotions.proof import check_use
from training.promotions.record import CHAMPION, MODEL_DIGEST_TAG, RUN_TAG, read_record

_OF_RUN = re.compile(r"runs:/(?P<run>[^/]+)/.+")
_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model and where it is from.

    Attributes:
        model: both towers.
        uri: its address, an alias resolved to the version it stood for.
        version: of the registry; None for a run's model or a folder.
        run_id: run that trained it, where known.
        calibration: of its evaluation on the data it was trained on; None before that.
        files: of a version: path -> SHA-256, but for those that change later (`training.promotions.proof`).
    """

    model: LinkModel
    uri: str
    version: ModelVersion | None = None
    run_id: str | None = None
    calibration: Calibration | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return what is the same of two models with the same files; of one that is not registered its address."""
        return self.uri if self.version is None else self.version.tags.get(MODEL_DIGEST_TAG, self.uri)

    @property
    def calibration_digest(self) -> str:
        """Return the digest of its calibration; empty: it has none."""
        return "" if self.calibration is None else self.calibration.digest

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
    needed = (model for model in models or () if model != CLASS_NAMES)
    named = next((model for model in needed if ":/" in model or not Path(model).is_dir()), None)
    if is_missing(uri) and (models is None or named is not None):
        folder = "" if ":/" in (named or ":/") else "no such folder, and "
        which = "" if named is None else f"--model {named}: {folder}"
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
    if named := registered_name(uri):
        return load_version(find_version(client, *named))
    if of_run := _OF_RUN.fullmatch(uri):
        with download(uri) as folder:
            return LoadedModel(
                model=LinkModel.load(folder, choose_device()),
                uri=uri,
                run_id=of_run["run"],
                calibration=logged_calibration(folder),
            )
    if ":/" in uri:
        raise UsageError(f"--model {uri}: expected {FORMS}")
    if Path(uri).is_dir():
        folder = Path(uri).absolute()
        data = _data_folder(folder, "--model", uri) if (folder / MLMODEL_FILE_NAME).is_file() else folder
        return LoadedModel(
            model=LinkModel.load(data, choose_device()), uri=str(folder), calibration=logged_calibration(data)
        )
    try:
        return load_version(find_version(client, uri, CHAMPION))
    except NotFoundError as problem:
        raise no_address(uri, problem) from problem


def open_model(address: str | None, tracking: str | None, *, dataset: str = "") -> LoadedModel:
    """Return the model at an address of a store; without one, the champion of the data set NAME[@VERSION].

    Raises:
        NotFoundError: as `load` and `champion_of_dataset` say.
        UsageError: likewise.
        IntegrityError: it must be proved champion (`training.promotions.proof`), and is not.
        GateError: it was trained on what was taken out of its lake too long ago (`taints.py`).
    """
    if address == CLASS_NAMES:
        return _untrained()  # no store is opened, nor made
    client = open_registry(tracking, [address] if address else None)
    named = _named(address) if address else (champion_of_dataset(client, dataset.partition("@")[0]).name, CHAMPION)
    if named is None:
        check_address(address or "")
        return load(address or "", client)
    try:
        record = read_record(registered(client, named[0]))
        number = record.number(named[1])
    except NotFoundError as problem:
        if address is None or registered_name(address):
            raise
        raise no_address(address, problem) from problem
    use, tags = check_use(record, number), record.model.versions[number]
    version = ModelVersion(name=record.model.name, version=number, run_id=tags[RUN_TAG] or None, tags=tags)
    loaded = load_version(version)
    use.check(loaded.files, loaded.calibration_digest)
    return loaded


def _named(address: str) -> tuple[str, str] | None:
    """Return name and version, or alias, of an address of a registered model; None of another."""
    if ":/" in address or _RUN_ID.fullmatch(address) or Path(address).is_dir():
        return registered_name(address)
    return address, CHAMPION


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
            files=version_files(folder),
        )


def run_of(client: mlflow.MlflowClient, uri: str) -> str:
    """Return the run that trained the model of an address.

    Raises:
        NotFoundError: there is no such model or run, or it is a folder's, which has none.
    """
    of_run = _OF_RUN.fullmatch(uri)
    named = registered_name(uri)
    found = of_run["run"] if of_run else find_version(client, *named).run_id if named else None
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
        except (MlflowException, OSError) as problem:
            raise NotFoundError(f"{option} {uri}: no model of multilink there: {_reason(problem)}") from problem
        yield _data_folder(folder, option, uri)


def _data_folder(folder: Path, option: str, uri: str) -> Path:
    """Return the folder within a logged model that `LinkModel.save` wrote; errors as of `download`."""
    try:
        return folder / str(Model.load(str(folder)).flavors["python_function"]["data"])
    except (MlflowException, YAMLError, OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
        reason = _reason(problem)
        raise NotFoundError(f"{option} {uri}: no model of multilink there: its MLmodel: {reason}") from problem


def _reason(problem: Exception) -> str:
    """Return one line: of several files that MLflow could not bring, what became of the first."""
    first, *others = str(problem).splitlines() or [type(problem).__name__]
    return next((line for line in others if line and not line.startswith("#####")), first)
