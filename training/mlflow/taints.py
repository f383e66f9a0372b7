"""Models that were trained on what was taken out of a lake afterwards: tainted, until another is promoted.

Training cannot be undone in part. So a version that was trained on such data is named in the chain of statements, and
has a tag; the next rebuild gives a data set without it, on which a successor is trained and judged. How long a tainted
champion may be used meanwhile is told by the policy that it was promoted by (`[forget] within_days`).
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import mlflow

from schemas.errors import GateError
from schemas.lake import Lake
from training.mlflow.champions import append_statement, statements
from training.mlflow.registry import DECISION_TAG, ModelVersion, trained_on

TAINTED = "tainted"  # event, and tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """What was taken out of the data that a version was trained on; not which: that is to be forgotten.

    Attributes:
        dataset: NAME@VERSION.
        at: when, ISO 8601 in UTC.
        documents: how many documents.
        images: how many images.
    """

    dataset: str
    at: str
    documents: int
    images: int

    def __str__(self) -> str:
        went = f"{self.documents} documents and {self.images} images"
        return f"trained on {self.dataset}, out of which {went} were taken on {self.at[:10]}"


def taint(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str, *, documents: int, images: int
) -> list[ModelVersion]:
    """Let every version that was trained on a data set version be tainted; return those versions.

    Args:
        client: of the registry.
        lake: that the data set is in; the chains of models that have none yet begin there.
        dataset: name.
        version: of the data set.
        documents: how many are taken out of it.
        images: how many are taken out of it.
    """
    found = trained_on(client, dataset, version)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    says = Taint(dataset=f"{dataset}@{version}", at=now, documents=documents, images=images)
    values = {name: getattr(says, name) for name in ("dataset", "at", "documents", "images")}
    for model in found:
        is_said = any(
            (each.predicate["event"], each.predicate.get("dataset"), each.predicate["model"].get("version"))
            == (TAINTED, says.dataset, model.version)
            for each in statements(client, model.name)
        )
        if not is_said:
            append_statement(client, model, TAINTED, values, lake)
        if TAINTED not in model.tags:
            client.set_model_version_tag(model.name, model.version, TAINTED, json.dumps(values, sort_keys=True))
    return found


def taint_of(version: ModelVersion) -> Taint | None:
    """Return why a version is tainted, None where it is not."""
    return Taint(**json.loads(version.tags[TAINTED])) if TAINTED in version.tags else None


def check_taint(version: ModelVersion) -> None:
    """Refuse a version that has been tainted for longer than its policy lets it be used.

    Raises:
        GateError: it has been.
    """
    found = taint_of(version)
    policy = json.loads(version.tags.get(DECISION_TAG, "{}")).get("policy", {})
    days = policy.get("forget", {}).get("within_days")
    if found is None or days is None:
        return
    if datetime.now(UTC) > datetime.fromisoformat(found.at) + timedelta(days=days):
        raise GateError(
            f"{version.uri} was {found}; by its policy it could be used for {days} days after that: promote another"
        )
