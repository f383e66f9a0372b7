"""The promotion gate: score candidate and champion on the same data, decide, record, move the alias; and the way back.

The rule itself is `promotion.py`, its settings `policy.py`, and how a champion succeeds another `succession.py`. The
decision is kept in the log of champions, as a tag of the candidate's version and as a file of its run; a refusal in the
latter two; a dry run leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlflow

from schemas.documents import Split
from schemas.errors import GateError, NotFoundError, UsageError
from schemas.lake import Lake
from training.evaluation.evaluate import Evaluation, evaluate_model
from training.mlflow.champions import Reign, current, settle, step_back, succeed
from training.mlflow.gate import STANDARD_POLICY, Contest, Decision, Guard, Measure, Policy, contest_of, decide, refuse
from training.mlflow.loading import load_version
from training.mlflow.registry import DECISION_TAG, ModelVersion, find_version
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, VERSION_TAG
from training.model import LinkModel


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Which version is champion again, and which was until now."""

    champion: ModelVersion
    replaced: str

    def to_json(self) -> dict[str, Any]:
        return {"model": self.champion.name, "version": self.champion.version, "champion_before": self.replaced}


def promote(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    lake: Lake | None = None,
    dataset: str | None = None,
    split: Split = Split.TEST,
    policy: Policy = STANDARD_POLICY,
    is_dry_run: bool = False,
    say: Callable[[str], None],
) -> Promotion:
    """Make a version the champion if the policy allows it.

    Args:
        client: of the registry.
        name: registered model.
        version: number or alias of the candidate.
        lake: holds the data sets; None: the lake the candidate was trained from.
        dataset: NAME or NAME@VERSION both are scored on; None: what the candidate was trained on.
        split: whose documents are scored.
        policy: settings of the rule.
        is_dry_run: decide, but record and move nothing.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version, or a data set version is not in the lake.
        UsageError: the version says not what it was trained on, or a model cannot be scored on it.
    """
    candidate = find_version(client, name, version)
    reign = current(client, name) if is_dry_run else settle(client, name)
    champion = None if reign.champion is None else find_version(client, name, reign.champion)
    target, lake = _target(candidate, lake, dataset)
    if reign.champion == candidate.version:
        promotion = _promotion(candidate, champion, target, split, None, is_dry_run=is_dry_run)
        if not is_dry_run:
            _complete(client, candidate, reign)
        return promotion
    decision = _judge(candidate, champion, lake=lake, target=target, split=split, policy=policy, say=say)
    promotion = _promotion(candidate, champion, target, split, decision, is_dry_run=is_dry_run)
    return promotion if is_dry_run else _carry_out(client, promotion, reign)


def rollback(client: mlflow.MlflowClient, name: str, *, champion: str | None = None) -> Rollback:
    """Make the previous champion the champion again; the one before that is then the previous one.

    Args:
        client: of the registry.
        name: registered model.
        champion: version that is to be replaced, so that a repeated call goes back once; None: whichever it is.

    Raises:
        NotFoundError: there is no such model, or the previous champion was deleted.
        GateError: there is no previous champion, another version is champion, or someone else was faster.
    """
    reign = settle(client, name)
    if champion is not None and champion != reign.champion:
        raise GateError(f"model '{name}': expected version {champion} as champion, found {reign.champion or 'none'}")
    restored = None if reign.previous is None else find_version(client, name, reign.previous)
    record = {"is_rollback": True, "version": reign.previous, "champion_before": reign.champion}
    is_done = step_back(client, name, reign, decision=json.dumps(record, sort_keys=True))
    if not is_done or restored is None or reign.champion is None:
        raise GateError(f"model '{name}': its champion changed at this moment; look, and roll back again if need be")
    return Rollback(champion=restored, replaced=reign.champion)


def _promotion(
    candidate: ModelVersion,
    champion: ModelVersion | None,
    dataset: str,
    split: Split,
    decision: Decision | None,
    *,
    is_dry_run: bool,
) -> Promotion:
    return Promotion(
        candidate=candidate,
        champion=champion,
        dataset=dataset,
        split=str(split),
        decision=decision,
        is_dry_run=is_dry_run,
    )


def _judge(
    candidate: ModelVersion,
    champion: ModelVersion | None,
    *,
    lake: Lake,
    target: str,
    split: Split,
    policy: Policy,
    say: Callable[[str], None],
) -> Decision:
    """Return the decision from both models' scores on the target, and on the guard sets where there is a champion."""
    models = {version.version: load_version(version).model for version in (candidate, champion) if version is not None}

    def contest(reference: str, part: Split, measure: Measure) -> Contest:
        evaluations = []
        for version in (candidate, champion):
            if version is not None:
                say(f"scoring {version.uri} on {reference}, split {part}")
                model = models[version.version]
                found = _evaluate(version, model, lake=lake, reference=reference, split=part, measure=measure)
                evaluations.append(found)
        return contest_of(reference, evaluations[0], evaluations[1] if champion is not None else None, measure)

    guards: Sequence[Guard] = policy.guards if champion is not None else ()
    found = {guard.dataset: "@".join(lake.find(guard.dataset)) for guard in guards}
    latest = "@".join(lake.find(target.partition("@")[0]))
    return decide(
        contest(target, split, policy.measure),
        policy,
        guards={guard.dataset: contest(found[guard.dataset], guard.split, guard.measure) for guard in guards},
        latest=latest,
    )


def _carry_out(client: mlflow.MlflowClient, promotion: Promotion, reign: Reign) -> Promotion:
    """Record the decision and, where it is to promote, do; return what came of it."""
    candidate, decision = promotion.candidate, promotion.decision
    if decision is not None and decision.is_promoted:
        is_champion = succeed(client, candidate.name, reign, candidate.version, decision=_text(promotion))
        if not is_champion:
            promotion = _too_late(promotion, decision, now=current(client, candidate.name))
    if promotion.decision is not None:
        _record(client, candidate, _text(promotion))
    return promotion


def _too_late(promotion: Promotion, decision: Decision, *, now: Reign) -> Promotion:
    """Return what became of a candidate during whose judging the champion changed."""
    if now.champion == promotion.candidate.version:
        return replace(promotion, decision=None)
    before = "none" if promotion.champion is None else f"version {promotion.champion.version}"
    reason = (
        f"the champion changed from {before} to version {now.champion} while this one was judged: promote it again to "
        "have it judged against the new champion"
    )
    return replace(promotion, decision=refuse(decision, "unchanged", reason))


def _complete(client: mlflow.MlflowClient, candidate: ModelVersion, reign: Reign) -> None:
    """Record the decision a champion was promoted by where whoever did so did not live to."""
    if reign.decision is None:
        return
    is_promotion = "checks" in json.loads(reign.decision)
    if is_promotion and candidate.tags.get(DECISION_TAG) != reign.decision:
        _record(client, candidate, reign.decision)


def _target(candidate: ModelVersion, lake: Lake | None, dataset: str | None) -> tuple[str, Lake]:
    """Return the NAME@VERSION a candidate is scored on, and the lake it is in."""
    tags = candidate.tags
    if lake is None and LAKE_TAG not in tags:
        raise UsageError(f"{candidate.uri}: its tags do not say which lake its data set is in; give --lake")
    lake = lake or Lake.at(tags[LAKE_TAG])
    if dataset is not None:
        return "@".join(lake.find(dataset)), lake
    if DATASET_TAG not in tags or VERSION_TAG not in tags:
        raise UsageError(f"{candidate.uri}: expected the tags {DATASET_TAG} and {VERSION_TAG}, found {sorted(tags)}")
    trained_on = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}"
    try:
        lake.find(trained_on)
    except NotFoundError as problem:
        raise NotFoundError(f"{candidate.uri} is of {trained_on}: {problem}; give its lake with --lake") from problem
    return trained_on, lake


def _evaluate(
    version: ModelVersion, model: LinkModel, *, lake: Lake, reference: str, split: Split, measure: Measure
) -> Evaluation:
    try:
        return evaluate_model(model, lake, reference, split, with_pairs=measure.is_of_retrieval)
    except UsageError as problem:
        raise UsageError(f"{version.uri}: {problem}") from problem


def _text(promotion: Promotion) -> str:
    return json.dumps(promotion.to_json(), sort_keys=True)


def _record(client: mlflow.MlflowClient, candidate: ModelVersion, text: str) -> None:
    """Keep a decision with its version: as a file of the run first, so that the tag is there only where both are."""
    if candidate.run_id is not None:
        client.log_text(candidate.run_id, text + "\n", f"promotion/{candidate.name}-{candidate.version}.json")
    client.set_model_version_tag(candidate.name, candidate.version, DECISION_TAG, text)
