"""Models that were trained on what was taken out of a lake afterwards: tainted, until another is promoted.

Training cannot be undone in part. So a version that was trained on such data is named in the record, and so is every
version that was trained from it, and every version that was trained on another version of the data set that is no
longer in the lake, so that what it held is not known. Which weights a version was trained from is a tag of it: runs are
deleted on MLflow's page. The next rebuild gives a data set without it, on which a successor is trained and judged. For
how long a tainted champion may be used meanwhile is a setting of the policy that it was promoted by (`[forget]
within_days`).
"""

import re
from collections.abc import Sequence

import mlflow

from schemas.lake import Lake
from training.mlflow.champions import append, record_of
from training.mlflow.registry import versions
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, START_TAG, VERSION_TAG
from training.promotions.record import TAINTED, ModelVersion


def taint(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str, *, documents: int, images: int
) -> list[ModelVersion]:
    """Let every version that depends on a data set version be tainted; return those versions.

    Args:
        client: of the registry.
        lake: that the data set is in; the chains of models that have none yet begin there.
        dataset: name.
        version: of the data set.
        documents: how many are taken out of it.
        images: how many are taken out of it.
    """
    found = _dependent(client, lake, dataset, version)
    went = {"dataset": f"{dataset}@{version}", "documents": documents, "images": images}
    for model, why in found:
        stated = {each.predicate["dataset"] for each in record_of(client, model.name).about(model.version, TAINTED)}
        if went["dataset"] not in stated:
            append(client, model, TAINTED, {**went, "why": why}, lake=lake)
    return [model for model, _ in found]


def _dependent(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str
) -> Sequence[tuple[ModelVersion, str]]:
    """Return each version that depends on a data set version, and in which way ("": it was trained on it)."""
    there, everything = lake.versions(dataset), versions(client)
    of_dataset = [each for each in everything if each.tags.get(DATASET_TAG) == dataset]
    waiting = [(each, "") for each in of_dataset if each.tags.get(VERSION_TAG) == version]
    waiting += [
        (each, f"trained on {dataset}@{each.tags.get(VERSION_TAG)}, which is not in the lake any more")
        for each in of_dataset
        if each.tags.get(LAKE_TAG) == lake.root.uri and each.tags.get(VERSION_TAG) not in there
    ]
    found: dict[str, tuple[ModelVersion, str]] = {}
    while waiting:
        model, why = waiting.pop(0)
        if model.uri not in found:
            found[model.uri] = model, why
            waiting += [(each, f"trained from {model.uri}") for each in everything if _starts_from(each, model)]
    return list(found.values())


def _starts_from(child: ModelVersion, parent: ModelVersion) -> bool:
    run = f"|{parent.run_id}" if parent.run_id else ""
    return re.search(f"(?:{re.escape(parent.uri)}{run})(?![0-9a-f])", child.tags.get(START_TAG, "")) is not None
