"""The steps from sources to links: what each is asked for, as a `multilink` command, and what need not be done again.

A step is a list of arguments, so that it can run in this process, in another, or on a cluster (`places.py`), and its
result is the summary that the command prints with `--json`. Dagster's assets and the demo call the same steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration.config import DatasetSettings, RayWhere, Settings
from orchestration.places import Place, Say, Step, Summary, in_process, in_subprocess, kuberay, ray_job
from schemas.configs import override
from schemas.lake import Lake
from training.config import ObjectiveConfig, TrainConfig
from training.recipes import recipe

if TYPE_CHECKING:
    from training.mlflow.registry import ModelVersion

_STOPPED = ("FAILED", "KILLED")
_LEFT_RUNNING = "RUNNING"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps that settings describe: their lake, their MLflow store, and where Beam and Ray run."""

    settings: Settings

    def build(self, dataset: DatasetSettings, *, say: Say) -> Summary:
        """Build a version of a data set, or reuse the one that the same inputs gave before."""
        with _recorded_web(dataset) as addresses:
            return _here(self.settings.beam.where)(build_step(self.settings, dataset, addresses), say)

    def train(
        self, dataset: DatasetSettings, version: str, objective: str, *, is_retry: bool = False, say: Say
    ) -> Summary:
        """Train on a data set version and register the model as challenger; it is judged by a step of its own.

        A model that the same settings gave before is reused. A run that was stopped is continued: one that says it is
        running is another's, unless this is another attempt (`is_retry`) of the step that may have left it so.
        """
        from training.mlflow.tracked_training import earlier_run

        config = override(recipe(dataset.train_recipe), dataset.training_of(objective))
        run = earlier_run(self.client(), config, dataset.name, version)
        if run is not None and run.version is not None:
            say(f"reused: {run.version.uri} was trained on this version with these settings")
            return {
                "run_id": run.id,
                "model": run.version.name,
                "version": run.version.version,
                "model_uri": run.version.uri,
                "dataset_version": version,
                "epochs": int(run.version.tags["epochs"]),
                "best_epoch": int(run.version.tags["best_epoch"]),
            }
        resumable = (*_STOPPED, _LEFT_RUNNING) if is_retry else _STOPPED
        resume = run.id if run is not None and run.status in resumable else ""
        return self._on_ray(train_step(self.settings, dataset, version, objective, resume=resume), say)

    def evaluate(self, model: str, reference: str, *, report: str, say: Say) -> Summary:
        """Score a model on the test split of a data set version, and draw the HTML report in the folder `report`."""
        return self._near(evaluate_step(self.settings, model, reference, report=report), say)

    def compare(self, model: str, other: str, reference: str, *, say: Say) -> Summary:
        """Compare a model with another, document by document, on the split that promotion judges by."""
        return self._near(compare_step(self.settings, model, other, reference), say)

    def promote(self, model: str, version: str, *, policy: str = "", say: Say) -> Summary:
        """Ask the gate whether a version may be the champion, move the alias where it may, and return the decision.

        `policy` is a file of the gate's settings; empty: the standard ones.
        """
        return self._near(promote_step(self.settings, model, version, policy=policy), say)

    def link(self, name: str, reference: str, *, say: Say) -> Summary:
        """Link every document of a data set version with a model's champion; the summary is empty where there is none.

        Shards that were linked before are reused.
        """
        from training.mlflow.registry import CHAMPION, alias_holder, model_names

        client = self.client()
        champion = alias_holder(client, name, CHAMPION) if name in model_names(client) else None
        if champion is None:
            return {}
        dataset, _, version = reference.partition("@")
        output = Lake.at(self.settings.lake).links(dataset, version, champion.name, champion.version).uri
        step = link_step(self.settings, champion.uri, reference, output=output)
        return self._on_ray(step, say) | {"model_version": champion.version}

    def client(self) -> Any:
        """Return an `MlflowClient` of the store."""
        from training.mlflow.runs import open_tracking

        return open_tracking(self.settings.tracking_uri)

    def model_of(self, dataset: str, version: str, objective: str) -> ModelVersion | None:
        """Return the newest model of an objective that was trained on a data set version, or None."""
        from training.mlflow.registry import models_of

        return next(iter(models_of(self.client(), registered_name(dataset, objective), version)), None)

    def run_address(self, run_id: str) -> str:
        """Return where a run is looked at: its page, or how it is called where there is no page."""
        from training.mlflow.runs import run_page

        page = self.settings.mlflow_page
        return run_page(self.client(), page, run_id) if page else f"runs:/{run_id}"

    def _near(self, step: Step, say: Say) -> Summary:
        """Do a step that takes seconds: on this machine, wherever Ray is."""
        return _here(self.settings.ray.where)(step, say)

    def _on_ray(self, step: Step, say: Say) -> Summary:
        """Do a step where Ray is."""
        ray = self.settings.ray
        clusters: dict[str, Place] = {
            RayWhere.RAY_JOB: partial(ray_job, address=ray.address),
            RayWhere.KUBERAY: partial(kuberay, ray=ray),
        }
        return clusters.get(ray.where, _here(ray.where))(step, say)


def build_step(settings: Settings, dataset: DatasetSettings, addresses: Step = ()) -> list[str]:
    """Return the command that builds a version of a data set; `addresses` are settings that lead it to another web."""
    beam = settings.beam
    recipe_ = ["--recipe", dataset.recipe] if dataset.recipe else []
    where = ["--lake", settings.lake, "--runner", beam.runner, "--workers", str(beam.workers)]
    options = ["--", *beam.options] if beam.options else []
    return ["build", dataset.name, *where, *recipe_, *_set(*addresses, *dataset.settings), "--json", *options]


def train_step(
    settings: Settings, dataset: DatasetSettings, version: str, objective: str, *, resume: str = ""
) -> list[str]:
    """Return the command that trains on a version of a data set, or with `resume` continues that run."""
    where = ["--dataset", f"{dataset.name}@{version}", *_stores(settings), "--workers", str(settings.ray.workers)]
    own = ["--recipe", dataset.train_recipe, *_set(*dataset.training_of(objective))]
    return ["train", *where, "--no-report", *(["--resume", resume] if resume else own), "--json"]


def evaluate_step(settings: Settings, model: str, reference: str, *, report: str) -> list[str]:
    """Return the command that scores a model on the test split of a data set version, with its report."""
    return ["evaluate", "--model", model, "--dataset", reference, *_stores(settings), "--report", report, "--json"]


def compare_step(settings: Settings, model: str, other: str, reference: str) -> list[str]:
    """Return the command that compares a model with another on the validation split; see `gate.Policy.split`."""
    return ["compare", other, model, "--dataset", reference, *_stores(settings), "--split", "val", "--json"]


def promote_step(settings: Settings, model: str, version: str, *, policy: str = "") -> list[str]:
    """Return the command that asks the gate whether a version may be the champion."""
    by = ["--policy", policy] if policy else []
    return ["promote", "--model", model, "--version", version, *_stores(settings), *by, "--json"]


def link_step(settings: Settings, model: str, reference: str, *, output: str) -> list[str]:
    """Return the command that links every document of a data set version."""
    where = ["--dataset", reference, *_stores(settings), "--workers", str(settings.ray.workers)]
    return ["link", "--model", model, *where, "--output", output, "--json"]


def registered_name(dataset: str, objective: str) -> str:
    """Return the name that models of a data set and an objective are registered under."""
    from training.mlflow.registry import model_name

    return model_name(dataset, TrainConfig(objective=ObjectiveConfig(name=objective)))


def _here(where: str) -> Place:
    """Return where a step runs on this machine; a cluster is driven from a process of its own."""
    return in_process if where == RayWhere.IN_PROCESS else in_subprocess


@contextlib.contextmanager
def _recorded_web(dataset: DatasetSettings) -> Iterator[list[str]]:
    """Serve a data set's recorded web, where it has one, and give the settings that lead a build to it."""
    if not dataset.recorded_web:
        yield []
        return
    from orchestration.demo.recorded_web import recording_at, scraping

    with scraping(recording_at(Path(dataset.recorded_web))) as settings:
        yield settings


def _stores(settings: Settings) -> list[str]:
    return ["--lake", settings.lake, "--tracking-uri", settings.tracking_uri]


def _set(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]
