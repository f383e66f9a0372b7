"""What makes the assets: the stages of a data set version, and what is made of each objective.

One operation makes all stages, because a build is one Beam pipeline that computes its version inside: no stage can be
made without the others. Repeating it is cheap: what was fetched is not fetched again, and the same inputs give the same
version.

Objectives are sets of assets, and data sets are the partitions of all assets, so that one run can go from sources to a
promotion: a failed blocking check stops what comes after it within a run. How the assets depend on each other, and when
they are made, is in `definitions.py`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.config import NOSTRUCT, DatasetSettings, RayWhere
from orchestration.dagster.checks import (
    CHAMPION,
    DATA_VERSION_TAG,
    MODEL_TAG,
    RUN_TAG,
    VERSION_TAG,
    model_key,
    newest_version,
    sound_versions,
)
from orchestration.dagster.external import VERSION
from orchestration.dagster.pipes import StepPipes
from orchestration.plan import Plan, registered_name
from orchestration.steps import FINAL, Step
from schemas.configs import resolve
from schemas.lake import Lake
from schemas.messages import MultilinkError

if TYPE_CHECKING:
    from training.promotions.record import ModelVersion

RUN, REPORT = "mlflow_run", "report/index.html"  # metadata; the page among the artefacts of a run


class BuildConfig(dg.Config):
    """What a person may change of one build in the launchpad."""

    settings: list[str] = Field([], description="KEY=VALUE, as `multilink build --set` takes them; after the file's.")


class TrainConfig(dg.Config):
    """What a person may change of one training in the launchpad."""

    recipe: str = Field("", description="Of the training; empty: the data set's.")
    settings: list[str] = Field([], description="KEY=VALUE, as `multilink train --set` takes them; after the file's.")


def build(
    context: dg.AssetExecutionContext, config: BuildConfig, plan: Plan, pipes: StepPipes
) -> Iterator[dg.MaterializeResult[Any]]:
    """Build a version of the run's data set; each stage is reported with what it made."""
    dataset = plan.settings.dataset(context.partition_key)
    dataset = replace(dataset, settings=(*dataset.settings, *config.settings))
    with mistakes_are_final():
        made = pipes.do(context, plan.build(dataset))
    context.instance.add_run_tags(context.run.run_id, {VERSION_TAG: str(value(made[-1].metadata or {}, VERSION))})
    for each in made:
        yield each._replace(metadata={**(each.metadata or {}), "configuration": resolve(dataset)})


@dataclass(frozen=True, slots=True)
class Task:
    """What an asset of an objective is to be made from; the version is the newest of the data set, and sound."""

    context: dg.AssetExecutionContext
    plan: Plan
    pipes: StepPipes
    objective: str
    dataset: DatasetSettings
    version: str

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, plan: Plan, pipes: StepPipes, objective: str) -> "Task":
        """Return what a run is to make of an objective.

        Raises:
            dg.Failure: the data set has no version, or its newest one did not pass its checks.
        """
        dataset = plan.settings.dataset(context.partition_key)
        return cls(context, plan, pipes, objective, dataset, sound_version(context))

    @property
    def reference(self) -> str:
        return f"{self.dataset.name}@{self.version}"

    def model(self, objective: str) -> "ModelVersion":
        """Return the model of an objective that was trained on the version."""
        found = self.plan.model_of(self.dataset.name, self.version, objective)
        if found is None:
            raise dg.Failure(f"no {objective} model of {self.reference}; make it first", allow_retries=False)
        return found

    def made(self, *steps: Step, is_heavy: bool = False, **more: Any) -> dg.MaterializeResult[Any]:
        """Do steps, and return the materialization that they reported, with more metadata.

        A heavy step reads a whole version, and is done where Ray is. Dagster's run is tagged with what it is about.
        """
        where = self.plan.settings.ray.where if is_heavy else RayWhere.SUBPROCESS
        (made,) = self.pipes.do(self.context, *steps, where=where)
        found = {**(made.metadata or {}), VERSION: self.version, **more}
        model, run = (value(found, name) for name in ("model_uri", "run_id"))
        tags = {VERSION_TAG: self.version, MODEL_TAG: model}
        if run is not None:
            found[RUN] = self.address(run)
            tags[RUN_TAG] = self.plan.run_address(run)
        self.context.instance.add_run_tags(self.context.run.run_id, tags)
        return made._replace(metadata=found)

    def address(self, run_id: str, artifact: str = "") -> Any:
        """Return the address of an MLflow run, or of a file of it, to click where there is a page."""
        address = self.plan.run_address(run_id, artifact)
        return dg.MetadataValue.url(address) if self.plan.settings.mlflow_page else address


Made = dg.MaterializeResult[Any] | None  # of an asset; None: there was nothing to make


def train(task: Task, config: TrainConfig) -> Made:
    """Train with the objective; the model is the challenger."""
    settings = (*task.dataset.train_settings, *config.settings)
    dataset = replace(task.dataset, train_recipe=config.recipe or task.dataset.train_recipe, train_settings=settings)
    step = task.plan.train(dataset, task.version, task.objective)
    return task.made(step, is_heavy=True, configuration=resolve(dataset) | {"objective": task.objective})


def evaluate(task: Task) -> Made:
    """Score the model, and compare it with NoStruct where there is one."""
    model, objectives = task.model(task.objective), task.dataset.objectives
    nostruct = task.model(NOSTRUCT) if NOSTRUCT in objectives and task.objective != NOSTRUCT else None
    with report_folder(task.plan.settings.lake, task.reference, model) as folder:
        steps: list[Step] = [task.plan.evaluate(model.uri, task.reference, report=folder)]
        if nostruct is not None:
            steps.append(task.plan.compare(model.uri, nostruct.uri, task.reference))
        pages = {"report_page": task.address(model.run_id, REPORT)} if model.run_id else {}
        if not Path(folder).is_relative_to(task.plan.settings.lake):
            pages["report"] = f"runs:/{model.run_id}/report"
        return task.made(*steps, model_uri=model.uri, run_id=model.run_id, **pages)


def promote(task: Task) -> Made:
    """Apply the gate; where it promotes, who is champion is observed."""
    model = task.model(task.objective)
    step = task.plan.promote(model.name, model.version, policy=task.dataset.policy)
    made = task.made(step, model_uri=model.uri, run_id=model.run_id)
    if value(made.metadata or {}, "is_promoted"):
        task.context.log_event(observed(task.objective, CHAMPION, task.dataset.name, model.version))
    return made


def by_champion(task: Task, step: Callable[[str, str, str], Step]) -> Made:
    """Do a step with the champion of the objective's models, where there is one."""
    name = registered_name(task.dataset.name, task.objective)
    champion = task.plan.champion(name)
    if champion is None:
        return None
    return task.made(step(name, task.reference, champion), is_heavy=True, model_uri=f"models:/{name}/{champion}")


def value(metadata: Mapping[str, Any], name: str) -> Any:
    """Return what metadata say, as it was reported; None where they say nothing of that name."""
    found = metadata.get(name)
    return found.value if isinstance(found, dg.MetadataValue) else found


def observed(objective: str, kind: str, dataset: str, value: str) -> dg.AssetMaterialization:
    """Return the event by which Dagster learns what is so in the registry; what depends on it is due if it changed."""
    key, tags = model_key(objective, kind), {DATA_VERSION_TAG: value}
    return dg.AssetMaterialization(key, partition=dataset, tags=tags, metadata={kind: value})


def sound_version(context: dg.AssetExecutionContext) -> str:
    """Return the newest version of the run's data set; nothing is made of one that did not pass its checks."""
    dataset = context.partition_key
    version = newest_version(context.instance, dataset)
    if version is None:
        raise dg.Failure(f"{dataset} has no version yet; run the job rebuild", allow_retries=False)
    if version not in sound_versions(context.instance, dataset):
        raise dg.Failure(f"{dataset}@{version} has not passed its checks", allow_retries=False)
    return version


def report_folder(lake: str, reference: str, model: "ModelVersion") -> AbstractContextManager[str]:
    """Give the folder of a model's report: beside the data sets of a local lake, else one that MLflow copies."""
    local = Lake.at(lake).root.child("reports", *reference.split("@"), f"{model.name}-{model.version}").local
    return nullcontext(str(local)) if local is not None else tempfile.TemporaryDirectory(prefix="multilink-report-")


@contextmanager
def mistakes_are_final() -> Iterator[None]:
    """Fail without another attempt where a person has to act."""
    try:
        yield
    except MultilinkError as problem:
        raise dg.Failure(description=str(problem), allow_retries=not isinstance(problem, FINAL)) from problem
