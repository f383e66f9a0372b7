"""One training run from arguments to a registered challenger: MLflow around Ray Train around the training core.

What is put in order here: find the data set, settle the configuration (a resumed run's is its own), start or continue
the MLflow run, launch, log, register. Ray is imported late: its import takes seconds, mistakes should be said first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.configs import override
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.config import TrainConfig
from training.data.loading import identify
from training.loop.trainer import TrainResult
from training.mlflow.registering import register
from training.mlflow.registry import EPOCHS_TAG, ModelVersion, model_name, versions
from training.mlflow.runs import (
    CURVE_FILE,
    DATASET_TAG,
    LAKE_TAG,
    RECIPE_TAG,
    VERSION_TAG,
    TrackedRun,
    finishing,
    open_tracking,
    resume_run,
    start_run,
)
from training.mlflow.starting import keep_start, pin_start
from training.ray.run_folder import runs_folder
from training.recipes import recipe as named_recipe

DEFAULT_RECIPE = "hessel-2019"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """What came of a training run; `best_validation_loss` is None without a validation split."""

    run_id: str
    model: str
    version: str
    epochs: int
    best_epoch: int
    best_validation_loss: float | None
    dataset: str
    dataset_version: str
    recipe: str
    tracking_uri: str

    @property
    def model_uri(self) -> str:
        return f"models:/{self.model}/{self.version}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"model_uri": self.model_uri}


def run_train(
    *,
    lake: str,
    dataset: str | None = None,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    workers: int = 1,
    resume: str | None = None,
    tracking: str | None = None,
    say: Say,
) -> TrainSummary:
    """Train on a data set version, log it as one MLflow run, and register the kept model as the challenger.

    Args:
        lake: path or URI of the lake.
        dataset: NAME or NAME@VERSION; with `resume`, it may be left out.
        recipe: named configuration; with `resume`, the run's own.
        overrides: dotted `key=value` assignments on top of it.
        workers: training processes.
        resume: id of the run to continue from its last checkpoint.
        tracking: URI of the MLflow store; None: the environment's, or `mlflow.db` in this directory.
        say: takes a line of progress.

    Raises:
        UsageError: something asked for does not exist or does not fit together.
        BuildError: training could not be finished.
    """
    home = Lake.at(lake)
    client = open_tracking(tracking)
    run = None if resume is None else resume_run(client, resume)
    config = pin_start(override(_base_config(recipe, run), overrides), client)
    reference = "@".join(home.find(_reference(dataset, run)))
    manifest, folder = read_manifest(home, reference)
    identify(manifest, folder, config)  # a wrong feature column is said before anything starts
    run = run or start_run(
        client,
        config,
        dataset=manifest.dataset,
        version=manifest.version,
        uri=folder.uri,
        lake=home.root.uri,
        workers=workers,
        git_commit=_git_commit(),
    )
    say(f"run {run.id}: {reference}, {config.recipe}, workers: {workers}; starting Ray")
    with finishing(run):
        keep_start(config, runs_folder(home).child(run.id))
        result = _launch(config, run, lake=home, reference=reference, workers=workers, say=say)
        version = _register(run, config, manifest, lake=home, result=result)
        say(f"registered {version.uri} as challenger")
    return TrainSummary(
        run_id=run.id,
        model=version.name,
        version=version.version,
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        best_validation_loss=result.best_validation_loss,
        dataset=manifest.dataset,
        dataset_version=manifest.version,
        recipe=config.recipe,
        tracking_uri=client.tracking_uri,
    )


def _base_config(recipe: str | None, run: TrackedRun | None) -> TrainConfig:
    if run is None:
        return named_recipe(recipe or DEFAULT_RECIPE)
    config = run.config()
    if recipe is not None and recipe != config.recipe:
        raise UsageError(f"--recipe {recipe}: run {run.id} was started with recipe {config.recipe}; leave it out")
    return config


def _reference(dataset: str | None, run: TrackedRun | None) -> str:
    if run is None:
        if dataset is None:
            raise UsageError("--dataset: expected NAME or NAME@VERSION, found nothing")
        return dataset
    own = f"{run.tags[DATASET_TAG]}@{run.tags[VERSION_TAG]}"
    if dataset is not None and dataset not in (own, run.tags[DATASET_TAG]):
        raise UsageError(f"--dataset {dataset}: run {run.id} was started on {own}; leave it out")
    return own


def _launch(config: TrainConfig, run: TrackedRun, *, lake: Lake, reference: str, workers: int, say: Say) -> TrainResult:
    from training.ray.train import launch

    def on_report(metrics: Mapping[str, float]) -> None:
        if run.log_epoch(metrics):
            say(epoch_line(metrics, config.training.epochs))

    address = os.environ.get("RAY_ADDRESS") or None
    result = launch(
        config,
        lake=lake,
        dataset=reference,
        workers=workers,
        run_id=run.id,
        on_report=on_report,
        on_progress=say,
        address=address,
    )
    for metrics in result.history:
        run.log_epoch(metrics)
    run.log_json(CURVE_FILE, [dict(metrics) for metrics in result.history])
    return result


def _register(
    run: TrackedRun, config: TrainConfig, manifest: Manifest, *, lake: Lake, result: TrainResult
) -> ModelVersion:
    """Register the kept model, once: a run that had been finished before it was resumed has its version already."""
    for version in versions(run.client, f"run_id = '{run.id}'"):
        if version.tags.get(EPOCHS_TAG) == str(result.epochs):
            return version
    tags = {
        DATASET_TAG: manifest.dataset,
        VERSION_TAG: manifest.version,
        RECIPE_TAG: config.recipe,
        LAKE_TAG: lake.root.uri,
        "run_id": run.id,
        EPOCHS_TAG: str(result.epochs),
        "best_epoch": str(result.best_epoch),
    }
    name = model_name(manifest.dataset, config)
    return register(run.client, result.model, name=name, run_id=run.id, tags=tags)


def epoch_line(metrics: Mapping[str, float], epochs: int) -> str:
    """Return an epoch's metrics as one line for a person; what could not be computed is left out."""
    shown = [f"epoch {int(metrics['epoch']):{len(str(epochs))}d}/{epochs}"]
    for name, title, form in (
        ("train_loss", "loss", ".4f"),
        ("validation_loss", "validation loss", ".4f"),
        ("validation_auc", "AUC", ".1f"),
        ("validation_rank", "rank", ".2f"),
    ):
        if name in metrics:
            shown.append(f"{title} {metrics[name]:{form}}")
    return "  ".join(shown)


def _git_commit() -> str | None:
    """Return the commit of the source tree this code runs from, or None where it is not one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
