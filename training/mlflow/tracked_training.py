"""One training run from arguments to a registered challenger: MLflow around Ray Train around the training core.

In this order: find the data set, settle the configuration (a resumed run's is its own), start or continue
the MLflow run, launch, log, register. Ray is imported late: its import takes seconds, and mistakes are reported before.

Only the driver knows the registry. It pins an alias in `training.start_from` to the version it stands for before the
run begins, so that the run's configuration names the weights it started from, and leaves copies in the run's folder in
the lake, where every worker finds them (`training.loop.trainer.fetch_start`). A run's folder is written under a
lease, so that two processes never train one run. Schedules and sweeps train with `reuse`: a run that was stopped is
continued, one that another process trains is waited for, and a finished one is not trained twice.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import mlflow

from schemas.configs import resolve
from schemas.lake import Folder, Lake
from schemas.leases import hold
from schemas.manifest import Manifest, read_manifest, small_splits
from schemas.messages import NotFoundError, Passing, Say, UsageError, left_of
from schemas.overrides import override
from schemas.versions import fingerprint
from training.config import Device, TrainConfig, check_driver
from training.data.loading import identify
from training.loop.setup import SOURCE_SIGN, split_start
from training.loop.trainer import TrainResult, has_start, is_address, runs_folder, store_start
from training.mlflow.champions import append, inherited, record_of
from training.mlflow.loading import download
from training.mlflow.registering import complete, register
from training.mlflow.registry import (
    BEST_EPOCH_TAG,
    EPOCHS_TAG,
    find_version,
    versions,
)
from training.mlflow.runs import (
    CONFIG_TAG,
    CURVE_FILE,
    RECIPE_TAG,
    START_TAG,
    TrackedRun,
    finishing,
    open_tracking,
    resume_run,
    start_run,
)
from training.mlflow.stored import model_name, registered_name
from training.promotions.record import DATASET_TAG, LAKE_TAG, TAINTED, VERSION_TAG, ModelVersion
from training.recipes import DEFAULT_RECIPE
from training.recipes import recipe as named_recipe


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


def earlier_runs(client: mlflow.MlflowClient, config: TrainConfig, dataset: str, version: str) -> list[str]:
    """Return the ids of the runs with exactly this configuration on `dataset`@`version`, the newest first.

    `training.start_from` names versions in place of aliases (`pin_start`).
    """
    experiment = client.get_experiment_by_name(f"multilink-{dataset}")
    if experiment is None:
        return []
    wanted = {DATASET_TAG: dataset, VERSION_TAG: version, CONFIG_TAG: fingerprint(resolve(config))}
    found = client.search_runs(
        [experiment.experiment_id],
        " and ".join(f"tags.{name} = '{value}'" for name, value in wanted.items()),
        order_by=["attributes.start_time DESC"],
    )
    return [run.info.run_id for run in found]


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


TASKS = "tasks"  # of the folder of runs: leases on what is trained, by its fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """The model of a training run.

    Attributes:
        version: its registered version, whose tags say what it was trained on and how.
        tracking_uri: of the store that it is in.
        best_validation_loss: None without a validation split, and of an earlier run's model.
        is_reused: whether an earlier run trained it.
    """

    version: ModelVersion
    tracking_uri: str
    best_validation_loss: float | None = None
    is_reused: bool = True

    def lines(self) -> list[str]:
        tags, loss = self.version.tags, self.best_validation_loss
        value, before = "" if loss is None else f", validation loss {loss:.4f}", ", trained before" * self.is_reused
        kept = f"{self.version.uri}: epoch {tags[BEST_EPOCH_TAG]} of {tags[EPOCHS_TAG]} kept{value}{before}"
        return [kept, f"run {self.version.run_id} in {self.tracking_uri}"]

    def to_json(self) -> dict[str, Any]:
        version, tags = self.version, self.version.tags
        return {
            "run_id": version.run_id,
            "model": version.name,
            "version": version.version,
            "model_uri": version.uri,
            "epochs": int(tags[EPOCHS_TAG]),
            "best_epoch": int(tags[BEST_EPOCH_TAG]),
            "best_validation_loss": self.best_validation_loss,
            "dataset": tags[DATASET_TAG],
            "dataset_version": tags[VERSION_TAG],
            "recipe": tags[RECIPE_TAG],
            "tracking_uri": self.tracking_uri,
            "is_reused": self.is_reused,
        }


def run_train(
    *,
    lake: str,
    dataset: str | None = None,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    workers: int = 1,
    resume: str | None = None,
    reuse: bool = False,
    parent: str | None = None,
    tracking: str | None = None,
    say: Say,
) -> TrainSummary:
    """Train on a data set version, log it as one MLflow run, and register the kept model as the challenger.

    Args:
        lake: path or URI of the lake.
        dataset: NAME or NAME@VERSION; None with `resume`: the run's own.
        recipe: named configuration; None with `resume`: the run's own.
        overrides: dotted `key=value` assignments on top of it; none with `resume`.
        workers: training processes.
        resume: id of the run to continue from its last checkpoint.
        reuse: return the model that a run with the same configuration on the same version came to; continue such a run
            that was stopped, and wait for one that another process trains.
        parent: id of the run that a new one is a part of.
        tracking: URI of the MLflow store; None: the environment's, or `mlflow.db` in this directory.
        say: takes a line of progress.

    Raises:
        UsageError: a data set, recipe or run does not exist, or settings do not fit together, or another process trains
            the run.
        BuildError: training could not be finished.
    """
    home = Lake.at(lake)
    client = open_tracking(tracking)
    if resume is not None and (dataset or recipe or overrides):
        raise UsageError(f"--resume {resume}: expected no --dataset, --recipe and --set: they are the run's own")
    run = None if resume is None else resume_run(client, resume)
    named = override(named_recipe(recipe or DEFAULT_RECIPE), overrides)
    config = pin_start(named, client) if run is None else run.config()
    config.check_workers(workers)
    if config.training.device is Device.CUDA:
        check_driver()
    if taint := inherited(client, {START_TAG: "|".join(config.training.start_from)}):
        raise UsageError(f"training.start_from: the model would be {taint}: start from another model, or from none")
    reference = "@".join(home.find(dataset or "" if run is None else run.reference))
    manifest, folder = read_manifest(home, reference)
    identify(manifest, folder, config.reading)  # a wrong feature column is an error before anything starts
    training = partial(
        _train, config, manifest, folder, overrides=overrides, lake=home, workers=workers, parent=parent, say=say
    )
    if not reuse:
        return training(client, run)
    task = runs_folder(home).child(TASKS, fingerprint([reference, resolve(config)]))

    def on_wait(holder: str) -> None:
        say(f"{holder} trains this already; waiting for it")

    with hold(task, on_wait=on_wait):
        earlier = earlier_runs(client, config, manifest.dataset, manifest.version)
        done = [version for each in earlier for version in versions(client, run_id=each)]
        if done:
            complete(client, done[0])
            say(f"reused: {done[0].uri} was trained on this version with these settings")
            return TrainSummary(version=done[0], tracking_uri=client.tracking_uri)
        return training(client, resume_run(client, earlier[0]) if earlier else None, on_wait=on_wait)


def _train(
    config: TrainConfig,
    manifest: Manifest,
    folder: Folder,
    client: mlflow.MlflowClient,
    run: TrackedRun | None,
    *,
    overrides: Sequence[str],
    lake: Lake,
    workers: int,
    parent: str | None,
    on_wait: Callable[[str], None] | None = None,
    say: Say,
) -> TrainSummary:
    """Train a new run, or continue one, under the lease of its folder."""
    run = run or start_run(
        client,
        config,
        dataset=manifest.dataset,
        version=manifest.version,
        uri=folder.uri,
        lake=lake.root.uri,
        workers=workers,
        settings=overrides,
        parent=parent,
    )
    reference, own = f"{manifest.dataset}@{manifest.version}", runs_folder(lake).child(run.id)
    with hold(own, on_wait=on_wait), finishing(run):
        say(f"run {run.id}: {reference}, {config.recipe}, workers: {workers}")
        if small := small_splits(manifest):
            say(f"warning: {small}")
        keep_start(config, own)
        result = _launch(config, run, lake=lake, reference=reference, workers=workers, say=say)
        version = _register(run, config, manifest, lake=lake, result=result)
        say(f"registered {version.uri} as challenger")
    return TrainSummary(
        version=version,
        tracking_uri=client.tracking_uri,
        best_validation_loss=result.best_validation_loss,
        is_reused=False,
    )


def _launch(config: TrainConfig, run: TrackedRun, *, lake: Lake, reference: str, workers: int, say: Say) -> TrainResult:
    """Train by Ray with several workers or on the cluster of RAY_ADDRESS, else in this process."""
    epochs, first = config.training.epochs, list[tuple[int, float]]()
    unit = "pass" if config.is_solved else "epoch"

    def on_report(metrics: Mapping[str, float]) -> None:
        if run.log_epoch(metrics):
            number, now = int(metrics["epoch"]), time.monotonic()
            first.append((number, now))
            done, seconds = number - first[0][0], now - first[0][1]
            say(Passing(epoch_line(metrics, epochs, unit) + left_of(done, epochs - first[0][0], seconds)))

    def on_progress(line: str) -> None:
        say(Passing(line))

    address = os.environ.get("RAY_ADDRESS") or None
    if workers == 1 and address is None:
        from training.loop.trainer import train_alone as launch
    else:
        from training.ray import train as by_ray

        say("starting Ray" if address is None else f"Ray at {address}")
        launch = partial(by_ray.launch, workers=workers, address=address)
    result = launch(config, lake=lake, dataset=reference, run_id=run.id, on_report=on_report, on_progress=on_progress)
    for metrics in result.history:
        run.log_epoch(metrics)
    run.send()
    run.log_json(CURVE_FILE, [dict(metrics) for metrics in result.history])
    return result


def _register(
    run: TrackedRun, config: TrainConfig, manifest: Manifest, *, lake: Lake, result: TrainResult
) -> ModelVersion:
    """Register the kept model, once: a run that had been finished before it was resumed has its version already.

    What was taken out of the lake meanwhile counts: it is tainted where what it started from is.

    Raises:
        NotFoundError: the data set version left the lake while it was trained on.
    """
    name = model_name(manifest.dataset, config.objective_name)
    if registered := versions(run.client, run_id=run.id, name=name):
        complete(run.client, registered[0])
        return registered[0]
    lake.find(f"{manifest.dataset}@{manifest.version}")
    tags = {
        DATASET_TAG: manifest.dataset,
        VERSION_TAG: manifest.version,
        RECIPE_TAG: config.recipe,
        LAKE_TAG: lake.root.uri,
        EPOCHS_TAG: str(result.epochs),
        BEST_EPOCH_TAG: str(result.best_epoch),
        **({START_TAG: "|".join(config.training.start_from)} if config.training.start_from else {}),
    }
    version = register(run.client, result.model, name=name, run_id=run.id, tags=tags)
    if taint := inherited(run.client, tags):
        append(run.client, record_of(run.client, name), version, TAINTED, asdict(taint), lake=lake)
    return version


def epoch_line(metrics: Mapping[str, float], epochs: int, unit: str = "epoch") -> str:
    """Return the metrics of an epoch, or of a solver's pass, as one line; what could not be computed is left out."""
    parts = [f"{unit} {int(metrics['epoch']):{len(str(epochs))}d}/{epochs}"]
    for name, title, form in (
        ("train_loss", "loss", ".4f"),
        ("validation_loss", "validation loss", ".4f"),
        ("validation_auc", "AUC", ".1f"),
        ("validation_rank", "rank", ".2f"),
    ):
        if name in metrics:
            parts.append(f"{title} {metrics[name]:{form}}")
    return "  ".join(parts)
