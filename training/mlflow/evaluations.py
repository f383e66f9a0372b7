"""What an evaluation takes from the registry and leaves there: the NoStruct model beside, numbers, the calibration.

evaluation/<data set>-<version>-<split>/evaluation.parquet    every number, `schemas.evaluation`
evaluation/calibration.json                                   of the data set version it was trained on
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import mlflow

from schemas.errors import IntegrityError, UsageError
from training.config import ObjectiveConfig, ObjectiveName, TrainConfig
from training.evaluation.beside import Rival
from training.evaluation.metrics.calibration import FILE_NAME, Calibration, read_calibration
from training.evaluation.rows import EvaluationReport
from training.mlflow.loading import LoadedModel, load_version
from training.mlflow.registry import model_name, models_of
from training.mlflow.runs import log_scores, read_artifact

FOLDER = "evaluation"
_NOT_IN_A_NAME = re.compile(r"[^0-9A-Za-z_./-]+")
_AS_METRICS = ("retrieval", "refined retrieval", "relations", "captions", "calibration")


def record_evaluation(
    client: mlflow.MlflowClient, loaded: LoadedModel, report: EvaluationReport, calibration: Calibration | None
) -> None:
    """Keep an evaluation with the run of a model, if it has one.

    Metrics and the calibration are kept for the data set version it was trained on alone, the table for any.
    """
    if loaded.run_id is None:
        return
    is_own = f"{report.dataset}@{report.dataset_version}" == loaded.model.card.data.reference
    with tempfile.TemporaryDirectory(prefix="multilink-") as scratch:
        report.write(Path(scratch) / f"{report.dataset}-{report.dataset_version}-{report.split}")
        if is_own and calibration is not None:
            (Path(scratch) / FILE_NAME).write_text(calibration.to_json(), encoding="utf-8")
        client.log_artifacts(loaded.run_id, scratch, FOLDER)
    if is_own:
        log_scores(client, loaded.run_id, metric_values(report))


def metric_values(report: EvaluationReport) -> dict[str, float]:
    """Return the numbers a run shows as metrics beside its link scores, named as MLflow allows."""
    return {
        _NOT_IN_A_NAME.sub("_", f"{report.split} {name}"): value
        for name, value in report.values().items()
        if name.startswith(_AS_METRICS)
    }


def calibration_of(client: mlflow.MlflowClient, loaded: LoadedModel, path: Path | None = None) -> Calibration | None:
    """Return a model's calibration: of a file where one is given, else of its run; None where there is none.

    Raises:
        UsageError: the file is not there.
        IntegrityError: what is there is no calibration.
    """
    if path is not None:
        return read_calibration(path)
    name = f"{FOLDER}/{FILE_NAME}"
    text = None if loaded.run_id is None else read_artifact(client, loaded.run_id, name)
    return None if text is None else Calibration.from_json(text, where=f"{name} of run {loaded.run_id}")


def nostruct_rival(client: mlflow.MlflowClient, loaded: LoadedModel, reference: str) -> Rival:
    """Return the newest NoStruct model that was trained on NAME@VERSION, or why there is none to set beside a model.

    Args:
        client: of the registry.
        loaded: the model that is judged.
        reference: what it is judged on.
    """
    nostruct = ObjectiveName.NOSTRUCT.value
    if loaded.model.card.config.objective.name == nostruct:
        return Rival(model=None, note="it is the model that is judged")
    dataset, _, version = reference.partition("@")
    name = model_name(dataset, TrainConfig(objective=ObjectiveConfig(name=nostruct)))
    found = models_of(client, name, version)
    if not found:
        return Rival(model=None, note=f"no model {name} of this data set version is registered")
    try:
        return Rival(model=load_version(found[0]).model, note=f"version {found[0].version}")
    except (UsageError, IntegrityError) as problem:
        return Rival(model=None, note=f"{found[0].uri} cannot be loaded: {problem}")
