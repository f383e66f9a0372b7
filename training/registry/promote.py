"""The promotion gate: score candidate and champion on the candidate's data, decide, record, move the alias.

The rule itself is `promotion.py`. The decision is kept as a tag of the candidate's version and as a file of its run,
whichever way it went; a dry run leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlflow

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.evaluation.evaluate import Evaluation, evaluate_model
from training.registry.loading import load_version
from training.registry.promotion import STANDARD_POLICY, Decision, Policy, decide
from training.registry.store import CHAMPION, ModelVersion, alias_holder, crown, find_version
from training.tracking import DATASET_TAG, LAKE_TAG, VERSION_TAG

DECISION_TAG = "promotion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What became of a candidate.

    Attributes:
        candidate: the version that was to be promoted.
        champion: the champion before, if any.
        dataset: NAME@VERSION both were scored on.
        split: split of it.
        decision: what was decided and why; None where the candidate was the champion already.
        is_dry_run: whether nothing was moved or recorded.
    """

    candidate: ModelVersion
    champion: ModelVersion | None
    dataset: str
    split: str
    decision: Decision | None
    is_dry_run: bool

    @property
    def is_champion(self) -> bool:
        """Return whether the candidate is, or in a dry run would be, the champion now."""
        return self.decision is None or self.decision.is_promoted

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("it is the champion already",) if self.decision is None else self.decision.reasons

    def to_json(self) -> dict[str, Any]:
        decision = {} if self.decision is None else self.decision.to_json()
        return decision | {
            "model": self.candidate.name,
            "version": self.candidate.version,
            "is_promoted": self.is_champion,
            "reasons": list(self.reasons),
            "champion_before": None if self.champion is None else self.champion.version,
            "dataset": self.dataset,
            "split": self.split,
            "is_dry_run": self.is_dry_run,
        }


def promote(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    lake: Lake | None = None,
    split: Split = Split.TEST,
    policy: Policy = STANDARD_POLICY,
    is_dry_run: bool = False,
    say: Callable[[str], None],
) -> Promotion:
    """Make a version the champion if it beats random and is not worse than the champion.

    Args:
        client: of the registry.
        name: registered model.
        version: number or alias of the candidate.
        lake: holds the data set; None: the lake the candidate was trained from.
        split: whose documents are scored.
        policy: settings of the rule.
        is_dry_run: decide, but record and move nothing.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version, or its data set version is not in the lake.
        UsageError: the version says not what it was trained on, or a model cannot be scored on it.
    """
    candidate = find_version(client, name, version)
    champion = alias_holder(client, name, CHAMPION)
    dataset, lake = _trained_on(candidate, lake)
    decision = None
    if champion is None or champion.version != candidate.version:
        scores = _evaluate(candidate, lake, dataset, split, say).document_auc
        rival = None if champion is None else _evaluate(champion, lake, dataset, split, say).document_auc
        decision = decide(scores, rival, policy)
    promotion = Promotion(
        candidate=candidate,
        champion=champion,
        dataset=dataset,
        split=str(split),
        decision=decision,
        is_dry_run=is_dry_run,
    )
    if decision is not None and not is_dry_run:
        _record(client, promotion)
        if decision.is_promoted:
            crown(client, candidate, champion)
    return promotion


def _trained_on(candidate: ModelVersion, lake: Lake | None) -> tuple[str, Lake]:
    """Return the NAME@VERSION a candidate was trained on, and the lake it is in."""
    tags = candidate.tags
    if DATASET_TAG not in tags or VERSION_TAG not in tags:
        raise UsageError(f"{candidate.uri}: expected the tags {DATASET_TAG} and {VERSION_TAG}, found {sorted(tags)}")
    if lake is None and LAKE_TAG not in tags:
        raise UsageError(f"{candidate.uri}: its tags do not say which lake its data set is in; give --lake")
    lake = lake or Lake.at(tags[LAKE_TAG])
    dataset = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}"
    try:
        lake.find(dataset)
    except NotFoundError as problem:
        raise NotFoundError(f"{candidate.uri} is of {dataset}: {problem}; give its lake with --lake") from problem
    return dataset, lake


def _evaluate(version: ModelVersion, lake: Lake, dataset: str, split: Split, say: Callable[[str], None]) -> Evaluation:
    say(f"scoring {version.uri} on {dataset}, split {split}")
    try:
        return evaluate_model(load_version(version).model, lake, dataset, split)
    except UsageError as problem:
        raise UsageError(f"{version.uri}: {problem}") from problem


def _record(client: mlflow.MlflowClient, promotion: Promotion) -> None:
    candidate = promotion.candidate
    text = json.dumps(promotion.to_json(), sort_keys=True)
    client.set_model_version_tag(candidate.name, candidate.version, DECISION_TAG, text)
    if candidate.run_id is not None:
        client.log_text(candidate.run_id, text + "\n", f"promotion/{candidate.name}-{candidate.version}.json")
