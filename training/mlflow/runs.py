"""The MLflow run of a training run: parameters, data set, metrics by epoch, artefacts; one run across restarts.

Everything goes through an explicit `MlflowClient` and run id, in the driver alone: workers never use MLflow. The caller
names the store, by the rule of `tracking_uri`. Models and promotion are in other modules.
"""

import fcntl
import json
import logging
import os
import shutil
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from schemas.configs import resolve, restore
from schemas.messages import NotFoundError, UsageError
from schemas.overrides import flatten
from schemas.versions import code_version, fingerprint
from training.config import TrainConfig
from training.mlflow.stored import SQLITE, check_folder, database_file, folder_tags, is_missing, tracking_uri
from training.promotions.record import DATASET_TAG, LAKE_TAG, VERSION_TAG

ARTIFACTS_VARIABLE = "MULTILINK_ARTIFACTS"
ARTIFACTS = "mlartifacts"
ATTEMPTS = 3  # at bringing files
METRICS_AT_ONCE = 1000  # that MLflow takes
CONFIG_FILE = "config.json"
CURVE_FILE = "training_curve.json"
PARENT_TAG = "mlflow.parentRunId"
_UNFINISHED = ".multilink-mlflow-"
COPIED_TAG, CHOSEN_TAG = "copied_from", "chosen_from"  # of a copied version; the latter: from how many candidates
SWEEP_TAG = "sweep"
RECIPE_TAG = "recipe"
START_TAG = "start_from"  # of a version: the addresses of the models that it was trained from
CONFIG_TAG = "config_fingerprint"
SHOWN, MOST_SHOWN = 6, 160  # characters of a version, and of a run's name


@dataclass(slots=True)
class TrackedRun:
    """A run that is being written; each epoch is logged once, also where it is reported again after a restart.

    Training goes on without its server: what could not be logged is kept, and sent with a later epoch. After each
    failure more epochs pass before the next attempt, since MLflow waits minutes for a server.
    """

    client: mlflow.MlflowClient
    id: str
    tags: Mapping[str, str]
    logged_epochs: set[int] = field(default_factory=set)
    unsent: list[Metric] = field(default_factory=list)
    pause: int = 0
    failures: int = 0

    @property
    def reference(self) -> str:
        """Return the NAME@VERSION that it trains on."""
        return f"{self.tags[DATASET_TAG]}@{self.tags[VERSION_TAG]}"

    def log_epoch(self, metrics: Mapping[str, float]) -> bool:
        """Log an epoch's metrics under its number; return whether they were new."""
        epoch = int(metrics["epoch"])
        if epoch in self.logged_epochs:
            return False
        now_ms = int(time.time() * 1000)
        self.unsent += [Metric(name, float(value), now_ms, epoch) for name, value in metrics.items() if name != "epoch"]
        self.logged_epochs.add(epoch)
        if self.pause:
            self.pause -= 1
            return True
        try:
            self.send()
        except MlflowException:
            self.failures += 1
            self.pause = 2**self.failures
        return True

    def send(self) -> None:
        """Log what is not logged yet; raises an `MlflowException` where the server does not answer."""
        for start in range(0, len(self.unsent), METRICS_AT_ONCE):
            self.client.log_batch(self.id, metrics=self.unsent[start : start + METRICS_AT_ONCE])
        self.unsent.clear()

    def log_json(self, name: str, value: object) -> None:
        self.client.log_text(self.id, json.dumps(value, indent=1, sort_keys=True) + "\n", name)

    def config(self) -> TrainConfig:
        """Return the configuration the run was started with.

        Raises:
            NotFoundError: the run has none: its driver ended before training began.
        """
        text = read_artifact(self.client, self.id, CONFIG_FILE)
        if text is None:
            raise NotFoundError(f"--resume {self.id}: the run ended before it began to train; start a new one")
        return restore(TrainConfig, json.loads(text))


def artifact_root(uri: str, *, environment: Mapping[str, str]) -> str | None:
    """Return the URI under which a store's new experiments keep artefacts; None: an MLflow server decides.

    `MULTILINK_ARTIFACTS` names it (`s3://bucket/prefix`); without it, a SQLite database keeps them beside itself.

    Raises:
        UsageError: the store is another database, and `MULTILINK_ARTIFACTS` is not set.
    """
    if uri.startswith(("http://", "https://", "databricks")):
        return None
    if explicit := environment.get(ARTIFACTS_VARIABLE):
        return explicit.rstrip("/")
    if uri.startswith(SQLITE):
        return (Path(database_file(uri)).parent / ARTIFACTS).as_uri()
    scheme = uri.partition(":")[0]
    raise UsageError(
        f"{ARTIFACTS_VARIABLE}: expected the address of artefacts of a {scheme} store, such as s3://bucket/mlflow"
    )


def open_tracking(explicit: str | None) -> mlflow.MlflowClient:
    """Return a client of the store that `tracking_uri` finds for this process, ready for use."""
    return connect(tracking_uri(explicit))


def connect(uri: str) -> mlflow.MlflowClient:
    """Return a client of the store, made ready for first use, and make it this process's default.

    Raises:
        UsageError: the store cannot be opened, or was moved.
    """
    check_folder(uri)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    with ExitStack() as opening:
        if uri.startswith(SQLITE):  # MLflow makes its tables, and of two processes that do so at once both fail
            folder = Path(database_file(uri)).parent
            folder.mkdir(parents=True, exist_ok=True)
            opening.callback(os.close, lock := os.open(folder, os.O_RDONLY))
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if is_missing(uri):
                _make_tables(Path(database_file(uri)))
            client = mlflow.MlflowClient(uri, registry_uri=uri)
            client.search_experiments(max_results=1)
        except (MlflowException, SQLAlchemyError, ModuleNotFoundError, OSError) as problem:
            hint = "; install multilink-pipeline[server]" if isinstance(problem, ModuleNotFoundError) else ""
            why = str(problem).splitlines()[0]
            raise UsageError(f"tracking store {uri} cannot be opened: {why}{hint}") from problem
    return client


def _make_tables(path: Path) -> None:
    """Make a database beside its place and move it there: MLflow cannot open one that a killed process left half made.

    The caller has the folder locked.
    """
    for left in path.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=path.parent) as scratch:
        made = Path(scratch, path.name)
        mlflow.MlflowClient(f"{SQLITE}{made}").search_experiments(max_results=1)
        if not path.exists():  # MLflow's own server does not look for the lock
            made.replace(path)


def start_run(
    client: mlflow.MlflowClient,
    config: TrainConfig,
    *,
    dataset: str,
    version: str,
    uri: str,
    lake: str,
    workers: int,
    settings: Sequence[str] = (),
    parent: str | None = None,
) -> TrackedRun:
    """Start a run in the experiment `multilink-<dataset>`, with everything that is known before it.

    Args:
        client: of the store.
        config: resolved configuration.
        dataset: name of the data set.
        version: of the data set.
        uri: folder of that version.
        lake: URI of the lake.
        workers: training processes.
        settings: what was set of the recipe's, `key=value`, for the run's name.
        parent: id of the run that it is a part of, such as a sweep's.
    """
    by = f" with similarity {config.similarities}" if config.similarities else ""
    tags = {
        DATASET_TAG: dataset,
        VERSION_TAG: version,
        RECIPE_TAG: config.recipe,
        LAKE_TAG: lake,
        "workers": str(workers),
        "code_version": code_version(),
        **config.traits,
        "mlflow.source.type": "JOB",
        "mlflow.source.name": f"multilink train --dataset {dataset}@{version} --recipe {config.recipe}",
        "mlflow.note.content": f"{config.objective_name}{by} on "
        f"`{dataset}@{version}`, recipe `{config.recipe}`, {config.training.epochs} epochs, {workers} workers. "
        "`report` among the artefacts is the evaluation.",
        **({PARENT_TAG: parent} if parent else {}),
    }
    name = run_name(config, f"{dataset}@{version[:SHOWN]}", settings)
    made = client.create_run(experiment_id(client, f"multilink-{dataset}"), tags=tags, run_name=name)
    run = TrackedRun(client, made.info.run_id, tags)
    resolved = resolve(config)
    client.log_batch(run.id, params=[Param(key, str(value)) for key, value in flatten(resolved).items()])
    kind = uri.partition(":")[0] if "://" in uri else "local"
    read = Dataset(name=dataset, digest=version, source_type=kind, source=json.dumps({"uri": uri}))
    client.log_inputs(run.id, [DatasetInput(read, tags=[InputTag("mlflow.data.context", "training")])])
    run.log_json(CONFIG_FILE, resolved)
    client.set_tag(run.id, CONFIG_TAG, fingerprint(resolved))
    return run


def run_name(config: TrainConfig, reference: str, settings: Sequence[str] = ()) -> str:
    """Return what a person reads of a run: `tiny cross-document ap on diy@c43e99, training.epochs=2`.

    The objective is not among the settings that it ends with: it is a word of its own.
    """
    words = " ".join(filter(None, dict.fromkeys((config.recipe, config.objective_name, config.similarities))))
    changed = (each for each in settings if not each.startswith(("objective=", "objective.name=")))
    return textwrap.shorten(", ".join((f"{words} on {reference}", *changed)), MOST_SHOWN, placeholder=" ...")


def parent_run(client: mlflow.MlflowClient, dataset: str, key: str, name: str) -> str:
    """Return the id of the run that is the parent of a sweep's runs, made where there is none.

    Args:
        client: of the store.
        dataset: name of the data set, whose experiment it is in.
        key: fingerprint of the sweep.
        name: of the run.
    """
    experiment = experiment_id(client, f"multilink-{dataset}")
    found = client.search_runs([experiment], f"tags.{SWEEP_TAG} = '{key}'", max_results=1)
    made = found[0] if found else client.create_run(experiment, tags={SWEEP_TAG: key}, run_name=name)
    return str(made.info.run_id)


def set_parent(client: mlflow.MlflowClient, run_id: str, parent: str) -> None:
    """Make a run the child of another, unless it has a parent."""
    if PARENT_TAG not in client.get_run(run_id).data.tags:
        client.set_tag(run_id, PARENT_TAG, parent)


def resume_run(client: mlflow.MlflowClient, run_id: str) -> TrackedRun:
    """Return a run to be continued, whatever state its driver left it in.

    Raises:
        NotFoundError: there is no such run in the store, or it is no training run of this project.
    """
    try:
        run = client.get_run(run_id)
    except MlflowException as problem:
        raise NotFoundError(f"--resume {run_id}: no such run in {client.tracking_uri}") from problem
    if DATASET_TAG not in run.data.tags:
        raise NotFoundError(f"--resume {run_id}: expected a training run of multilink, found another kind of run")
    client.log_batch(run_id, tags=[RunTag("resumed", "true")])
    history = client.get_metric_history(run_id, "train_loss")
    return TrackedRun(client, run_id, dict(run.data.tags), {metric.step for metric in history})


@contextmanager
def finishing(run: TrackedRun) -> Iterator[TrackedRun]:
    """Let the run be running, and end it with the state the body ended in: finished, failed, or killed."""
    run.client.update_run(run.id, status="RUNNING")
    try:
        yield run
    except BaseException as problem:
        with suppress(MlflowException):  # the first error is the one to tell
            run.client.set_terminated(run.id, "KILLED" if isinstance(problem, KeyboardInterrupt) else "FAILED")
        raise
    run.client.set_terminated(run.id, "FINISHED")


def read_artifact(client: mlflow.MlflowClient, run_id: str, name: str) -> str | None:
    """Return the text of a file among a run's artefacts, or None where it has no such file."""
    if name not in {item.path for item in client.list_artifacts(run_id, name.rpartition("/")[0] or None)}:
        return None
    with tempfile.TemporaryDirectory(prefix="multilink-") as scratch:
        return fetch_files(partial(client.download_artifacts, run_id, name, scratch)).read_text(encoding="utf-8")


def fetch_files(download: Callable[[], str]) -> Path:
    """Return where MLflow's `download` puts files, tried again where the server dies in the middle of one.

    For a server that cannot be reached MLflow waits of itself.

    Raises:
        MlflowException: there is no such run or version, or no attempt brought every file.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return Path(download())
        except MlflowException as problem:
            if problem.error_code != "INTERNAL_ERROR":  # but such as RESOURCE_DOES_NOT_EXIST
                raise
    return Path(download())


def training_curve(client: mlflow.MlflowClient, run_id: str) -> tuple[Mapping[str, float], ...]:
    """Return the metrics of each epoch of a run that has ended well; none of one that has not."""
    return tuple(json.loads(read_artifact(client, run_id, CURVE_FILE) or "[]"))


def experiment_id(client: mlflow.MlflowClient, name: str) -> str:
    """Return the id of the experiment of that name, made where it is not there.

    Raises:
        UsageError: it was deleted; or it is to be made, and no place for its artefacts is set (`artifact_root`).
    """
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage != "active":
        raise UsageError(
            f"experiment '{name}' was deleted: restore it with mlflow experiments restore --experiment-id "
            f"{found.experiment_id}, or remove it for good with mlflow gc"
        )
    if found is not None:
        return str(found.experiment_id)
    root = artifact_root(client.tracking_uri, environment=os.environ)
    tags = folder_tags(client.tracking_uri)
    return str(client.create_experiment(name, artifact_location=root, tags=tags))


def run_page(client: mlflow.MlflowClient, page: str, run_id: str, artifact: str = "") -> str:
    """Return the address of a run, or of a file of it, on MLflow's page.

    It is in the view of training: the other is of traces, and empty.
    """
    experiment = client.get_run(run_id).info.experiment_id
    inside = f"/artifacts/{artifact}" if artifact else ""
    return f"{page.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}{inside}?workflowType=machine_learning"
