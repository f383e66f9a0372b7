"""What makes the assets: the stages of a data set version, and what is made of each objective.

One operation makes all stages, because a build is one Beam pipeline that computes its version inside: no stage can be
made without the others. Repeating it is cheap: what was fetched is not fetched again, and the same inputs give the same
version.

Objectives are sets of assets, and data sets are the partitions of all assets, so that one run can go from sources to a
promotion: a failed blocking check stops what comes after it within a run. How the assets depend on each other, and when
they are made, is in `definitions.py`.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.config import NOSTRUCT, DatasetSettings
from orchestration.dagster.record import (
    CHAMPION,
    DATA_VERSION_TAG,
    MODEL_TAG,
    RUN_TAG,
    STAGES,
    VERSION,
    VERSION_TAG,
    model_key,
    newest_version,
    sound_versions,
)
from orchestration.steps import Steps, Summary, registered_name
from pipelines.card.changes import as_markdown, changes_between
from schemas.configs import resolve
from schemas.errors import GateError, IntegrityError, UsageError
from schemas.failures import Stage
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.promotions.record import ModelVersion

Metadata = dict[str, Any]
LEAD = "lead_over_nostruct"
LEADING = "leading_score"
REPORT = "report/index.html"  # among the artefacts of a run
# asset -> stages of the build whose counts are its metadata
COUNTED = {
    "documents": (Stage.SOURCES, Stage.DOCUMENTS, Stage.RULES),
    "images": (Stage.IMAGES,),
    "duplicates": (Stage.DEDUPE,),
    "features": (Stage.FEATURES,),
    "shards": (Stage.SHARDS,),
}


class BuildConfig(dg.Config):
    """What a person may change of one build in the launchpad."""

    settings: list[str] = Field([], description="KEY=VALUE, as `multilink build --set` takes them; after the file's.")


class TrainConfig(dg.Config):
    """What a person may change of one training in the launchpad."""

    recipe: str = Field("", description="Of the training; empty: the data set's.")
    settings: list[str] = Field([], description="KEY=VALUE, as `multilink train --set` takes them; after the file's.")


def build(context: dg.AssetExecutionContext, config: BuildConfig, steps: Steps) -> Iterator[dg.MaterializeResult[None]]:
    """Build a version of the run's data set, and report what each stage made."""
    from orchestration.dagster.pipes import piped  # imports the client of Ray

    dataset = steps.settings.dataset(context.partition_key)
    dataset = replace(dataset, settings=(*dataset.settings, *config.settings))
    with mistakes_are_final():
        summary = piped(steps, context).build(dataset, say=context.log.info)
    context.instance.add_run_tags(context.run.run_id, {VERSION_TAG: summary["version"]})
    try:
        changes = changes_since(Lake.at(steps.settings.lake), dataset.name, summary["version"], context.instance)
    except IntegrityError as problem:  # the checks of the version find it, too, and stop what depends on it
        changes = str(problem)
    for stage in STAGES:
        more = {"changes": dg.MetadataValue.md(changes)} if stage == "shards" else {}
        yield dg.MaterializeResult(
            asset_key=stage,
            metadata=stage_metadata(stage, summary, dataset) | more,
            data_version=dg.DataVersion(summary["version"]),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """What an asset of an objective is to be made from; the version is the newest of the data set, and sound."""

    context: dg.AssetExecutionContext
    steps: Steps
    objective: str
    dataset: DatasetSettings
    version: str

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, steps: Steps, objective: str) -> "Task":
        """Return what a run is to make of an objective.

        Raises:
            dg.Failure: the data set has no version, or its newest one did not pass its checks.
        """
        from orchestration.dagster.pipes import piped

        dataset = steps.settings.dataset(context.partition_key)
        return cls(context, piped(steps, context), objective, dataset, sound_version(context))

    @property
    def reference(self) -> str:
        return f"{self.dataset.name}@{self.version}"

    def say(self, line: str) -> None:
        """Show a line of progress on the run's page."""
        self.context.log.info(line)

    def model(self, objective: str) -> "ModelVersion":
        """Return the model of an objective that was trained on the version."""
        found = self.steps.model_of(self.dataset.name, self.version, objective)
        if found is None:
            raise dg.Failure(f"no {objective} model of {self.reference}; make it first", allow_retries=False)
        return found

    def address(self, run_id: str | None, artifact: str = "") -> Any:
        """Return the address of an MLflow run, or of a file of it, to click where there is a page."""
        if run_id is None:
            return "none"
        address = self.steps.run_address(run_id, artifact)
        return dg.MetadataValue.url(address) if self.steps.settings.mlflow_page else address

    def tag_run(self, model: str, run_id: str | None) -> None:
        """Tag Dagster's run with the data set version, model and MLflow run that it is about."""
        run = {} if run_id is None else {RUN_TAG: self.steps.run_address(run_id)}
        tags = {VERSION_TAG: self.version, MODEL_TAG: model} | run
        self.context.instance.add_run_tags(self.context.run.run_id, tags)


def train(task: Task, config: TrainConfig) -> Metadata:
    """Train, and return the model, its run, and how it was trained."""
    settings = (*task.dataset.train_settings, *config.settings)
    dataset = replace(task.dataset, train_recipe=config.recipe or task.dataset.train_recipe, train_settings=settings)
    summary = task.steps.train(dataset, task.version, task.objective, say=task.say)
    task.tag_run(summary["model_uri"], summary["run_id"])
    return {
        "model": summary["model_uri"],
        "mlflow_run": task.address(summary["run_id"]),
        "epochs": summary["epochs"],
        "kept_epoch": summary["best_epoch"],
        "configuration": resolve(dataset) | {"objective": task.objective},
    }


def evaluate(task: Task) -> Metadata:
    """Score the model, and return its scores as numbers and by how much they exceed NoStruct's, where there is one."""
    from training.metrics.links import ScoreKind  # imports torch, which loading the definitions must not

    model, objectives = task.model(task.objective), task.dataset.objectives
    nostruct = task.model(NOSTRUCT) if NOSTRUCT in objectives and task.objective != NOSTRUCT else None
    with report_folder(task.steps.settings.lake, task.reference, model) as folder:
        scores = task.steps.evaluate(model.uri, task.reference, report=folder, say=task.say)
    task.tag_run(model.uri, model.run_id)
    kind = ScoreKind.LINKS if ScoreKind.LINKS.leading in scores else ScoreKind.PAIRS
    if kind.leading not in scores["random"]:
        raise UsageError(f"{task.reference}: no true link of the test split is known, so no model can be compared")
    chance = scores["random"][kind.leading]
    report = scores["report"]
    found: Metadata = {
        "model": model.uri,
        "documents": scores["documents"],
        "report": dg.MetadataValue.path(report if Path(report).exists() else f"runs:/{model.run_id}/report"),
        "report_page": task.address(model.run_id, REPORT),
        "mlflow_run": task.address(model.run_id),
        LEADING: kind.leading,
        f"random_{kind.leading}": chance["mean"] if isinstance(chance, dict) else chance,
    }
    for name in kind.metrics:
        interval = [round(scores[name][end], 2) for end in ("low", "high")]
        found |= {name: round(scores[name]["mean"], 2), f"{name}_interval": interval}
    if nostruct is not None:
        compared = task.steps.compare(model.uri, nostruct.uri, task.reference, say=task.say)
        found[LEAD] = compared["models"][1]["minus_first"][kind.leading]
    return found


def promote(task: Task) -> Metadata:
    """Apply the gate, and return its decision with its reasons as a list for people; who is champion is observed."""
    model = task.model(task.objective)
    decision = task.steps.promote(model.name, model.version, policy=task.dataset.policy, say=task.say)
    task.tag_run(model.uri, model.run_id)
    if decision["is_promoted"]:
        task.context.log_event(observed(task.objective, CHAMPION, task.dataset.name, str(decision["version"])))
    return {
        VERSION: decision["dataset"].partition("@")[2],
        "model": f"models:/{decision['model']}/{decision['version']}",
        "is_promoted": decision["is_promoted"],
        "reasons": dg.MetadataValue.md("\n".join(f"- {reason}" for reason in decision["reasons"])),
        "champion_before": decision["champion_before"] or "none",
        "mlflow_run": task.address(model.run_id),
        "decision": decision,
    }


def link(task: Task) -> Metadata:
    """Link the version with the champion; without a champion there is no metadata."""
    return task.steps.link(registered_name(task.dataset.name, task.objective), task.reference, say=task.say)


def index(task: Task) -> Metadata:
    """Make the version's pictures searchable by the champion; without a champion there is no metadata."""
    return task.steps.index(registered_name(task.dataset.name, task.objective), task.reference, say=task.say)


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


def stage_metadata(stage: str, summary: Summary, dataset: DatasetSettings) -> Metadata:
    """Return the metadata of a stage's asset: the version, its folder, what went in and out, and the settings."""
    counts = {name: row for name, row in summary["stages"].items() if name in COUNTED[stage]}
    found: Metadata = {
        VERSION: summary["version"],
        "path": dg.MetadataValue.path(summary["path"]),
        "reused": summary["reused"],
        "counts": table("stage", counts),
        "configuration": resolve(dataset),
    }
    for row in counts.values():
        found |= {name: row[name] for name in ("in", "out", "rejected", "failed")}
    if stage == "shards":
        documents = sum(int(row["documents"]) for row in summary["splits"].values())
        found |= {"splits": table("split", summary["splits"]), "dagster/row_count": documents}
    if stage == "documents":
        failures = {reason: {"records": count} for reason, count in summary["failures"].items()}
        found["failures"] = table("reason", failures)
    return found


def table(head: str, rows: Mapping[str, Mapping[str, int]]) -> dg.TableMetadataValue:
    """Return rows of numbers as a table of Dagster's page; `head` is the column of their names."""
    numbers = dict.fromkeys(number for row in rows.values() for number in row)
    columns = [dg.TableColumn(head, "string"), *(dg.TableColumn(number, "int") for number in numbers)]
    records = [dg.TableRecord({head: name, **row}) for name, row in rows.items()]
    return dg.MetadataValue.table(records, dg.TableSchema(columns=columns))


def changes_since(lake: Lake, dataset: str, version: str, instance: dg.DagsterInstance) -> str:
    """Return as Markdown what differs between a version and the sound one before it."""
    before = next((each for each in sound_versions(instance, dataset) if each != version), None)
    if before is None or before not in lake.versions(dataset):
        return "The first sound version."
    return as_markdown(changes_between(lake, dataset, before, version))


def report_folder(lake: str, reference: str, model: "ModelVersion") -> AbstractContextManager[str]:
    """Give the folder of a model's report: beside the data sets of a local lake, else one that MLflow copies."""
    local = Lake.at(lake).root.child("reports", *reference.split("@"), f"{model.name}-{model.version}").local
    return nullcontext(str(local)) if local is not None else tempfile.TemporaryDirectory(prefix="multilink-report-")


@contextmanager
def mistakes_are_final() -> Iterator[None]:
    """Fail without another attempt where a person has to act: a mistake, a refusal of the gate, bytes that changed."""
    try:
        yield
    except (UsageError, GateError, IntegrityError) as problem:
        raise dg.Failure(description=str(problem), allow_retries=False) from problem
