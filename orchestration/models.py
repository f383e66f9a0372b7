"""What the registry says, for the assets that ask before they train, score or link."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration.steps import Summary, TrainStep
from schemas.configs import override
from training.config import TrainConfig
from training.recipes import recipe

_RESUMABLE = ("FAILED", "KILLED")
_LEFT_RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A registered model of a data set version."""

    name: str
    version: str
    run_id: str | None

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


def config_of(step: TrainStep) -> TrainConfig:
    """Return the configuration a training would have."""
    return override(recipe(step.recipe), step.settings)


def find_trained(tracking: str, step: TrainStep) -> Summary | None:
    """Return the summary of the training that this step would repeat, or None where it has not been done."""
    from training.mlflow.runs import open_tracking
    from training.mlflow.tracked_training import earlier_run

    dataset, _, version = step.dataset.partition("@")
    run = earlier_run(open_tracking(tracking), config_of(step), dataset, version)
    if run is None or run.version is None:
        return None
    model = run.version
    return {
        "run_id": run.id,
        "model": model.name,
        "version": model.version,
        "model_uri": model.uri,
        "dataset": dataset,
        "dataset_version": version,
        "epochs": int(model.tags["epochs"]),
        "best_epoch": int(model.tags["best_epoch"]),
        "recipe": model.tags["recipe"],
        "tracking_uri": tracking,
    }


def resumable(tracking: str, step: TrainStep, *, is_retry: bool) -> str:
    """Return the run of this training to go on with, or nothing.

    A run that says it is running is another's, unless this is another attempt of the step that may have left it so.
    """
    from training.mlflow.runs import open_tracking
    from training.mlflow.tracked_training import earlier_run

    dataset, _, version = step.dataset.partition("@")
    client = open_tracking(tracking)
    run = earlier_run(client, config_of(step), dataset, version)
    if run is None or run.version is not None:
        return ""
    may_go_on = run.status in _RESUMABLE or (is_retry and run.status == _LEFT_RUNNING)
    return run.id if may_go_on else ""


def trained_on(tracking: str, dataset: str, version: str, objective: str) -> Trained | None:
    """Return the newest model of an objective that was trained on a data set version, or None."""
    from training.mlflow.registry import models_of
    from training.mlflow.runs import open_tracking

    found = models_of(open_tracking(tracking), registered_name(dataset, objective), version)
    return Trained(name=found[0].name, version=found[0].version, run_id=found[0].run_id) if found else None


def champion_of(tracking: str, name: str) -> Trained | None:
    """Return the champion of a registered model, or None where there is none."""
    from training.mlflow.registry import CHAMPION, alias_holder, model_names
    from training.mlflow.runs import open_tracking

    client = open_tracking(tracking)
    found = alias_holder(client, name, CHAMPION) if name in model_names(client) else None
    return None if found is None else Trained(name=found.name, version=found.version, run_id=found.run_id)


def run_address(tracking: str, page: str, run_id: str) -> str:
    """Return where a run is looked at: its page, or how it is called where there is no page."""
    from training.mlflow.runs import open_tracking, run_page

    return run_page(open_tracking(tracking), page, run_id) if page else f"runs:/{run_id}"


def registered_name(dataset: str, objective: str) -> str:
    """Return the name models of a data set and an objective are registered under."""
    config = override(TrainConfig(), [f"objective.name={objective}"])
    from training.mlflow.registry import model_name

    return model_name(dataset, config)
