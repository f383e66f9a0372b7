"""The assets: the stages of a data set version, and what is made of each objective.

One operation makes all stages, because a build is one Beam pipeline that computes its version inside: no stage can be
made without the others. Repeating it is cheap: what was fetched is not fetched again, and the same inputs give the same
version.

Objectives are sets of assets, and data sets are the partitions of all assets, so that one run can go from sources to a
promotion: Dagster gives a run one partitioning, and a failed blocking check stops what comes after it within a run.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from orchestration.config import NOSTRUCT, DatasetSettings, RetrySettings, Settings
from orchestration.dagster.record import (
    GPU_POOL,
    MODEL_TAG,
    RUN_TAG,
    SCRAPING_POOL,
    STAGES,
    VERSION,
    VERSION_TAG,
    dataset_partitions,
    group_of,
    model_key,
    sound_before,
    version_records,
)
from orchestration.demo.recorded_web import recorded_web
from orchestration.rules.decisions import EVALUATION, INDEX, LINKS, PROMOTION, TRAINED
from orchestration.steps import Steps, Summary, registered_name
from pipelines.card.changes import as_markdown, changes_between
from schemas.configs import resolve
from schemas.errors import GateError, IntegrityError, UsageError
from schemas.failures import Stage
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.mlflow.registry import ModelVersion

Metadata = dict[str, Any]
Results = Iterator[dg.MaterializeResult[None]]
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
_MEANING = {
    "documents": "Records of the source, filtered into documents.",
    "images": "Pictures of the documents: fetched, checked, kept small.",
    "duplicates": "Near-duplicate pictures, found exactly; what the policy left.",
    "features": "A vector per picture and per sentence.",
    "shards": "The version: Parquet shards by split, and the manifest that makes them real.",
}


def make_stages(settings: Settings) -> dg.AssetsDefinition:
    """Return the stages of a build as assets."""
    specs = [
        dg.AssetSpec(
            stage,
            deps=[before] if before else [],
            description=_MEANING[stage],
            group_name="data_sets",
            owners=settings.owners,
            freshness_policy=freshness(settings),
            kinds={"python", "beam" if stage != "shards" else "parquet"},
        )
        for before, stage in zip(("", *STAGES), STAGES, strict=False)
    ]

    @dg.multi_asset(
        name="build",
        specs=specs,
        partitions_def=dataset_partitions(settings),
        retry_policy=retry_policy(settings.retries),
        pool=SCRAPING_POOL,
    )
    def build(context: dg.AssetExecutionContext, steps: dg.ResourceParam[Steps]) -> Results:
        from orchestration.dagster.pipes import piped  # imports the clients of Ray and Kubernetes
        from orchestration.dagster.samples import sample_of

        dataset = settings.dataset(context.partition_key)
        with mistakes_are_final(), recorded_web(dataset.recorded_web) as addresses:
            summary = piped(steps, context).build(dataset, addresses, say=context.log.info)
        context.instance.add_run_tags(context.run.run_id, {VERSION_TAG: summary["version"]})
        lake = Lake.at(settings.lake)
        texts: dict[str, str] = {}
        try:
            texts["changes"] = changes_since(lake, dataset.name, summary["version"], context.instance)
            texts["sample"] = sample_of(lake, f"{dataset.name}@{summary['version']}")
        except IntegrityError as problem:  # the checks of the version find it, too, and stop what depends on it
            texts["damaged"] = str(problem)
        more = {name: dg.MetadataValue.md(text) for name, text in texts.items()}
        for stage in STAGES:
            yield dg.MaterializeResult(
                asset_key=stage,
                metadata=stage_metadata(stage, summary, dataset) | (more if stage == "shards" else {}),
                data_version=dg.DataVersion(summary["version"]),
            )

    return build


def make_models(settings: Settings, objective: str) -> list[dg.AssetsDefinition]:
    """Return the assets of an objective."""
    return [_model_asset(settings, objective, kind) for kind in kinds_of(objective)]


def kinds_of(objective: str) -> tuple[str, ...]:
    """Return what is made of an objective; NoStruct is a baseline, which is neither promoted nor used to link."""
    return (TRAINED, EVALUATION) if objective == NOSTRUCT else tuple(KINDS)


@dataclass(frozen=True, slots=True)
class Task:
    """What an asset of an objective is to be made from; the version is the newest of the data set, and sound."""

    context: dg.AssetExecutionContext
    steps: Steps
    objective: str
    dataset: DatasetSettings
    version: str

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
            raise dg.Failure(f"no {objective} model of {self.reference}; run the job train", allow_retries=False)
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


def train(task: Task) -> Metadata:
    """Train, and return the model, its run, and how it was trained."""
    summary = task.steps.train(task.dataset, task.version, task.objective, say=task.say)
    task.tag_run(summary["model_uri"], summary["run_id"])
    return {
        "model": summary["model_uri"],
        "mlflow_run": task.address(summary["run_id"]),
        "epochs": summary["epochs"],
        "kept_epoch": summary["best_epoch"],
        "configuration": resolve(task.dataset) | {"objective": task.objective},
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
    """Apply the gate, and return its decision with its reasons as a list for people."""
    model = task.model(task.objective)
    decision = task.steps.promote(model.name, model.version, policy=task.dataset.policy, say=task.say)
    task.tag_run(model.uri, model.run_id)
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
    from orchestration.dagster.samples import links_of

    steps, name = task.steps, registered_name(task.dataset.name, task.objective)
    summary = steps.link(name, task.reference, say=task.say)
    sample = links_of(Lake.at(steps.settings.lake), task.reference, summary["output"]) if summary else ""
    return summary | ({"sample": dg.MetadataValue.md(sample)} if sample else {})


def index(task: Task) -> Metadata:
    """Make the version's pictures searchable by the champion; without a champion there is no metadata."""
    return task.steps.index(registered_name(task.dataset.name, task.objective), task.reference, say=task.say)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of asset that is made of an objective; `{}` in its description is the objective."""

    make: Callable[[Task], Metadata]
    description: str
    programs: frozenset[str]


KINDS = {
    TRAINED: Kind(train, "The model trained with {}, registered as challenger.", frozenset({"ray", "mlflow"})),
    EVALUATION: Kind(
        evaluate,
        "Scores on the test split with 95% intervals, beside random and NoStruct; the HTML report.",
        frozenset({"mlflow"}),
    ),
    PROMOTION: Kind(
        promote,
        "The gate's decision with its reasons; where it promotes, the champion is this model.",
        frozenset({"mlflow"}),
    ),
    LINKS: Kind(link, "The champion's links of every document of the newest version.", frozenset({"parquet"})),
    INDEX: Kind(index, "The newest version's pictures, searchable by the champion.", frozenset({"arrow"})),
}


def _model_asset(settings: Settings, objective: str, name: str) -> dg.AssetsDefinition:
    kind, is_training = KINDS[name], name == TRAINED

    @dg.asset(
        key=model_key(objective, name),
        partitions_def=dataset_partitions(settings),
        group_name=group_of(objective),
        owners=settings.owners,
        freshness_policy=freshness(settings),
        output_required=False,  # a data set may not be configured for this objective
        deps=_needed(settings, objective, name),
        description=kind.description.format(objective),
        retry_policy=retry_policy(settings.retries),
        pool=GPU_POOL if is_training else None,
        kinds={"python", *kind.programs},
    )
    def asset(context: dg.AssetExecutionContext, steps: dg.ResourceParam[Steps]) -> Results:
        from orchestration.dagster.pipes import piped

        dataset = settings.dataset(context.partition_key)
        if objective not in dataset.objectives:
            context.log.info(f"{dataset.name} is not configured for {objective}: nothing to do")
            return
        version = sound_version(context)
        with mistakes_are_final():
            metadata = kind.make(Task(context, piped(steps, context), objective, dataset, version))
        if metadata:
            yield dg.MaterializeResult(metadata={VERSION: version} | metadata)

    return asset


def _needed(settings: Settings, objective: str, kind: str) -> list[dg.AssetKey]:
    """Return what an asset of an objective is made of; an evaluation compares with NoStruct, where that is trained."""
    if kind == TRAINED:
        return [dg.AssetKey(stage) for stage in STAGES]
    if kind == EVALUATION:
        compared = {NOSTRUCT} & set(settings.objectives)
        return [model_key(each, TRAINED) for each in sorted({objective} | compared)]
    return [model_key(objective, EVALUATION if kind == PROMOTION else PROMOTION)]


def sound_version(context: dg.AssetExecutionContext) -> str:
    """Return the newest version of the run's data set; nothing is made of one that did not pass its checks."""
    newest = next(version_records(context.instance, context.partition_key, limit=1), None)
    if newest is None:
        raise dg.Failure(f"{context.partition_key} has no version yet; run the job rebuild", allow_retries=False)
    if not newest.is_sound:
        raise dg.Failure(f"{context.partition_key}@{newest.version} has not passed its checks", allow_retries=False)
    return newest.version


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
    before = sound_before(instance, dataset, version)
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


def freshness(settings: Settings) -> dg.FreshnessPolicy | None:
    """Return when an asset counts as stale."""
    hours = settings.fresh_within_hours
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours)) if hours else None


def retry_policy(retries: RetrySettings) -> dg.RetryPolicy:
    """Return how a failed step is repeated: after a while that doubles, and varies a little."""
    return dg.RetryPolicy(
        max_retries=retries.attempts,
        delay=retries.delay_s,
        backoff=dg.Backoff.EXPONENTIAL,
        jitter=dg.Jitter.PLUS_MINUS,
    )
