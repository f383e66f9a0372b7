"""What is made of one objective: trained model, evaluation, promotion, links; a set of assets per objective.

Objectives are sets of assets, and data sets are the partitions of all assets, so that one run can go from sources to a
promotion: Dagster gives a run one partitioning, and a check that says no stops what comes after it within a run.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, DatasetSettings, Settings
from orchestration.dagster.history import made
from orchestration.dagster.names import (
    GPU_POOL,
    MODEL_TAG,
    RUN_TAG,
    STAGES,
    VERSION,
    VERSION_TAG,
    dataset_partitions,
    group_of,
    model_key,
)
from orchestration.dagster.resources import Training
from orchestration.dagster.stages import retry_policy
from orchestration.models import Trained, registered_name, run_address, trained_on
from orchestration.rules.decisions import EVALUATION, LINKS, PROMOTION, TRAINED
from orchestration.steps import Summary
from schemas.configs import resolve
from training.evaluation.metrics.links import ScoreKind

Results = Iterator[dg.MaterializeResult[None]]
LEAD = "lead_over_nostruct"
LEADING = "leading_score"


def make_models(settings: Settings, objective: str) -> list[dg.AssetsDefinition]:
    """Return the assets of an objective; NoStruct is a baseline, which is neither promoted nor used to link."""
    made = [_trained_model, _evaluation, *(() if objective == NOSTRUCT else (_promotion, _links))]
    return [make(settings, objective) for make in made]


def _trained_model(settings: Settings, objective: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=model_key(objective, TRAINED),
        partitions_def=dataset_partitions(settings),
        group_name=group_of(objective),
        output_required=False,  # a data set may not be configured for this objective
        deps=list(STAGES),
        description=f"The model trained with {objective}, registered as challenger.",
        retry_policy=retry_policy(settings.retries),
        pool=GPU_POOL,
        kinds={"python", "ray", "mlflow"},
    )
    def trained_model(context: dg.AssetExecutionContext, training: Training) -> Results:
        dataset = _configured(settings, context, objective)
        if dataset is None:
            return
        version = reference_of(context).partition("@")[2]
        is_retry = context.retry_number > 0 or context.run.parent_run_id is not None
        summary = training.train(dataset, version, objective, is_retry=is_retry, say=context.log.info)
        tag_run(context, training, summary["dataset_version"], summary["model_uri"], summary["run_id"])
        yield dg.MaterializeResult(metadata=training_metadata(summary, training, dataset, objective))

    return trained_model


def _evaluation(settings: Settings, objective: str) -> dg.AssetsDefinition:
    has_rival = objective != NOSTRUCT and NOSTRUCT in settings.objectives

    @dg.asset(
        key=model_key(objective, EVALUATION),
        partitions_def=dataset_partitions(settings),
        group_name=group_of(objective),
        output_required=False,  # a data set may not be configured for this objective
        deps=[model_key(each, TRAINED) for each in ([objective, NOSTRUCT] if has_rival else [objective])],
        description="Scores on the test split with 95% intervals, beside random and NoStruct; the HTML report.",
        kinds={"python", "mlflow"},
    )
    def evaluation(context: dg.AssetExecutionContext, training: Training) -> Results:
        model = _model(settings, context, training, objective)
        if model is None:
            return
        reference = reference_of(context)
        with report_folder(training, reference, model) as folder:
            scores = training.evaluate(model.uri, reference, report=folder, say=context.log.info)
        lead = _lead_over_nostruct(settings, context, training, model)
        tag_run(context, training, reference.partition("@")[2], model.uri, model.run_id)
        yield dg.MaterializeResult(metadata=evaluation_metadata(scores, lead, model, reference))

    return evaluation


def _promotion(settings: Settings, objective: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=model_key(objective, PROMOTION),
        partitions_def=dataset_partitions(settings),
        group_name=group_of(objective),
        output_required=False,  # a data set may not be configured for this objective
        deps=[model_key(objective, EVALUATION)],
        description="The gate's decision with its reasons; where it says yes, the champion is this model.",
        kinds={"python", "mlflow"},
    )
    def promotion(context: dg.AssetExecutionContext, training: Training) -> Results:
        dataset, model = context.partition_key, _model(settings, context, training, objective)
        if model is None:
            return
        policy = settings.dataset(dataset).policy
        decision = training.promote(model.name, model.version, policy=policy, say=context.log.info)
        tag_run(context, training, decision["dataset"].partition("@")[2], model.uri, model.run_id)
        yield dg.MaterializeResult(metadata=promotion_metadata(decision))

    return promotion


def _links(settings: Settings, objective: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=model_key(objective, LINKS),
        partitions_def=dataset_partitions(settings),
        group_name=group_of(objective),
        output_required=False,  # a data set may not be configured for this objective
        deps=[model_key(objective, PROMOTION)],
        description="The champion's links of every document of the newest version.",
        kinds={"python", "parquet"},
    )
    def links(context: dg.AssetExecutionContext, training: Training) -> Results:
        if _configured(settings, context, objective) is None:
            return
        reference = reference_of(context)
        summary = training.link(registered_name(context.partition_key, objective), reference, say=context.log.info)
        if summary:
            yield dg.MaterializeResult(metadata=summary | {VERSION: reference.partition("@")[2]})

    return links


def reference_of(context: dg.AssetExecutionContext) -> str:
    """Return NAME@VERSION of the newest version of the run's data set; nothing is made of one whose checks said no."""
    dataset = context.partition_key
    newest = next(made(context.instance, dataset, limit=1), None)
    if newest is None:
        raise dg.Failure(f"{dataset} has no version yet; run the job rebuild", allow_retries=False)
    if not newest.is_sound:
        raise dg.Failure(f"{dataset}@{newest.version} has not passed its checks", allow_retries=False)
    return f"{dataset}@{newest.version}"


def training_metadata(summary: Summary, training: Training, dataset: DatasetSettings, objective: str) -> dict[str, Any]:
    """Return what a trained model tells: its version, its run, and how it was trained."""
    address = run_address(training.tracking_uri, training.page, summary["run_id"])
    return {
        VERSION: summary["dataset_version"],
        "model": summary["model_uri"],
        "mlflow_run": dg.MetadataValue.url(address) if training.page else address,
        "epochs": summary["epochs"],
        "kept_epoch": summary["best_epoch"],
        "configuration": resolve(dataset) | {"objective": objective},
    }


def evaluation_metadata(scores: Summary, lead: Summary | None, model: Trained, reference: str) -> dict[str, Any]:
    """Return scores as a table of numbers, and by how much they exceed NoStruct's where that is there.

    `lead` is metric -> the paired difference with its interval.
    """
    report = scores["report"]
    told: dict[str, Any] = {
        VERSION: reference.partition("@")[2],
        "model": model.uri,
        "documents": scores["documents"],
        "report": dg.MetadataValue.path(report if Path(report).exists() else f"runs:/{model.run_id}/report"),
    }
    kind = ScoreKind.LINKS if ScoreKind.LINKS.leading in scores else ScoreKind.PAIRS
    for name in kind.metrics:
        told |= {name: scores[name]["mean"], f"{name}_interval": [scores[name]["low"], scores[name]["high"]]}
    chance = scores["random"][kind.leading]
    told |= {LEADING: kind.leading, f"random_{kind.leading}": chance["mean"] if isinstance(chance, dict) else chance}
    return told | ({} if lead is None else {LEAD: lead[kind.leading]})


def promotion_metadata(decision: Summary) -> dict[str, Any]:
    """Return the gate's decision with its reasons as a list a person reads."""
    return {
        VERSION: decision["dataset"].partition("@")[2],
        "model": f"models:/{decision['model']}/{decision['version']}",
        "is_promoted": decision["is_promoted"],
        "reasons": dg.MetadataValue.md("\n".join(f"- {reason}" for reason in decision["reasons"])),
        "champion_before": decision["champion_before"] or "none",
        "decision": decision,
    }


@contextmanager
def report_folder(training: Training, reference: str, model: Trained) -> Iterator[str]:
    """Give the folder of a model's report: beside the data sets of a local lake, else one that MLflow copies."""
    from schemas.lake import Lake

    local = Lake.at(training.lake).root.child("reports", *reference.split("@"), f"{model.name}-{model.version}").local
    if local is not None:
        yield str(local)
        return
    with tempfile.TemporaryDirectory(prefix="multilink-report-") as scratch:
        yield scratch


def tag_run(
    context: dg.AssetExecutionContext, training: Training, version: str, model: str, run_id: str | None
) -> None:
    """Say on Dagster's run which data set version, model and MLflow run it is about."""
    tags = {VERSION_TAG: version, MODEL_TAG: model}
    if run_id is not None:
        tags[RUN_TAG] = run_address(training.tracking_uri, training.page, run_id)
    context.instance.add_run_tags(context.run.run_id, tags)


def _configured(settings: Settings, context: dg.AssetExecutionContext, objective: str) -> DatasetSettings | None:
    dataset = settings.dataset(context.partition_key)
    if objective in dataset.objectives:
        return dataset
    context.log.info(f"{dataset.name} is not configured for {objective}: nothing to do")
    return None


def _model(settings: Settings, context: dg.AssetExecutionContext, training: Training, objective: str) -> Trained | None:
    """Return the model of the newest version, or None where the data set is not configured for the objective."""
    if _configured(settings, context, objective) is None:
        return None
    dataset, _, version = reference_of(context).partition("@")
    model = trained_on(training.tracking_uri, dataset, version, objective)
    if model is None:
        raise dg.Failure(f"no {objective} model of {dataset}@{version}; run the job train", allow_retries=False)
    return model


def _lead_over_nostruct(
    settings: Settings, context: dg.AssetExecutionContext, training: Training, model: Trained
) -> Summary | None:
    """Return metric -> by how much a model's mean exceeds that of the NoStruct model of the same version, paired."""
    nostruct = _model(settings, context, training, NOSTRUCT)
    if nostruct is None or nostruct == model:
        return None
    compared = training.compare(model.uri, nostruct.uri, reference_of(context), say=context.log.info)
    found: Summary = compared["models"][1]["minus_first"]
    return found
