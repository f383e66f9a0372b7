"""The promotion gate: score candidate and champion on the same data, decide, state it; the way back; and approvals.

The rule is in `gate.py`, its settings are in `policy.py`, models are scored in `judging.py`. Each decision is a
statement of the record, one that makes a champion with what it rests on (`evidence.py`). Aliases and tags of the
registry follow it (`champions.py`). A dry run leaves nothing behind, and is not counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mlflow

from schemas.console import Say
from schemas.errors import GateError, NotFoundError, UsageError
from schemas.lake import Lake
from training.metrics.preference import Preference
from training.mlflow.champions import align, append, change_champion, record_of
from training.mlflow.evidence import evidence_of
from training.mlflow.gate import Check, Decision, refuse
from training.mlflow.judging import Rivals, find_judging_data, judge
from training.mlflow.loading import LoadedModel, load_version
from training.mlflow.policy import STANDARD_POLICY, Policy
from training.mlflow.registry import ModelVersion, find_version
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, VERSION_TAG
from training.promotions.keys import default_trust, own_signer, trusted_keys
from training.promotions.proof import CALIBRATION
from training.promotions.record import (
    APPROVED,
    BEST,
    BEST_BEFORE,
    JUDGED,
    MODEL_DIGEST_TAG,
    Record,
)

Preferred = Callable[[Lake, str, str], Preference | None]  # lake, address of the champion, of the candidate
ALREADY = Check(name="champion", is_passed=True, reason="it is the champion already")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """The result of a promotion.

    Attributes:
        candidate: the version that was to be promoted.
        champion: number of the champion before, if any.
        decision: what was decided and why.
        is_dry_run: whether nothing was moved or recorded.
        best: number of the best champion before, if any.
    """

    candidate: ModelVersion
    champion: str | None
    decision: Decision
    is_dry_run: bool
    best: str | None = None

    @property
    def is_best(self) -> bool:
        """Return whether the candidate is the best champion now: the first one, or shown to be better than the best."""
        return self.decision.is_promoted and (self.best is None or self.decision.beats_best)

    def to_json(self) -> dict[str, Any]:
        return self.decision.to_json() | {
            "model": self.candidate.name,
            "version": self.candidate.version,
            "champion_before": self.champion,
            "is_dry_run": self.is_dry_run,
            BEST_BEFORE: self.best,
            BEST: self.candidate.version if self.is_best else self.best,
        }


def promote(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    lake: Lake | None = None,
    dataset: str | None = None,
    policy: Policy = STANDARD_POLICY,
    preferred: Preferred | None = None,
    is_dry_run: bool = False,
    say: Say,
) -> Promotion:
    """Make a version the champion if the policy allows it.

    Args:
        client: of the registry.
        name: registered model.
        version: number or alias of the candidate.
        lake: holds the data sets; None: the lake the candidate was trained from.
        dataset: NAME or NAME@VERSION both are scored on; None: what the candidate was trained on.
        policy: settings of the rule.
        preferred: returns what editors preferred; asked where the policy wants to know.
        is_dry_run: decide, but record and move nothing.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version, or a data set version or split is not in the lake.
        UsageError: the version has no tags of the data it was trained on, or a model cannot be scored on it.
        IntegrityError: a model's files are not those that were registered.
    """
    candidate = find_version(client, name, version)
    record = (record_of if is_dry_run else align)(client, candidate.name)
    champion, (target, lake) = record.current.champion, _target(candidate, lake, dataset)
    data = find_judging_data(lake, target, split=policy.split, guards=policy.guards if champion is not None else ())
    loaded = load_version(candidate)
    if champion == candidate.version and _is_stated(record, loaded):
        decision = Decision(checks=(ALREADY,), dataset=target, split=data.split, policy=policy)
        return Promotion(candidate=candidate, champion=champion, decision=decision, is_dry_run=is_dry_run)
    rivals = Rivals(
        champion=None if champion is None else find_version(client, candidate.name, champion),
        best=None if record.best in (None, champion) else find_version(client, candidate.name, record.best),
        attempt=record.attempt(candidate.version, target, data.split),
    )
    if policy.editors.preferred and preferred is not None and rivals.champion is not None:
        rivals = replace(rivals, preference=preferred(lake, rivals.champion.uri, candidate.uri))
    keys = trusted_keys(default_trust()) if any(":" in each for each in policy.approvers) else ()
    approvals = record.approvals(candidate.version, candidate.tags.get(MODEL_DIGEST_TAG, ""), keys)
    promotion = Promotion(
        candidate=candidate,
        champion=champion,
        decision=judge(loaded, rivals, data, policy, approvals=approvals, say=say),
        is_dry_run=is_dry_run,
        best=record.best,
    )
    if is_dry_run:
        return promotion
    evidence = evidence_of(client, candidate, record=record, judged=data, calibration=loaded.calibration_digest)
    return _carry_out(client, promotion, record, evidence, lake)


def rollback(client: mlflow.MlflowClient, name: str, *, champion: str | None = None) -> tuple[ModelVersion, str]:
    """Make the previous champion the champion again, and return it and the number of the one it replaces.

    The champion before it is then the previous one.

    Args:
        client: of the registry.
        name: registered model.
        champion: version that is to be replaced, so that a repeated call goes back once; None: whichever it is.

    Raises:
        NotFoundError: there is no such model, or the previous champion was deleted.
        GateError: there is no previous champion, it is tainted, another version is champion, or someone else was
            faster.
    """
    record = align(client, name)
    name, change = record.model.name, record.current
    if champion is not None and champion != change.champion:
        raise GateError(f"model '{name}': expected version {champion} as champion, found {change.champion or 'none'}")
    if change.champion is None or change.previous is None:
        found = "none is champion" if change.champion is None else "the present one is the first"
        raise GateError(f"model '{name}' has no champion to go back to: {found}")
    if taint := record.taint(change.previous):
        raise GateError(f"models:/{name}/{change.previous} was {taint}: it cannot be champion again; promote another")
    restored, best = find_version(client, name, change.previous), record.best
    if best == change.champion:  # it is no champion any more, so the best one before it is the best again
        promoted = record.promotion(best)
        best = (promoted.decision.get(BEST_BEFORE) if promoted else None) or change.previous
    decision = {"is_rollback": True, "version": change.previous, "champion_before": change.champion, BEST: best}
    evidence = evidence_of(client, restored, record=record)
    if not change_champion(client, name, change, change.champions[1:], decision=decision, evidence=evidence):
        raise GateError(
            f"model '{name}': its champion was changed by another process meanwhile; see multilink promotions {name}, "
            "and roll back again if it is still needed"
        )
    return restored, change.champion


def approve(client: mlflow.MlflowClient, name: str, version: str, *, by: str) -> ModelVersion:
    """State who approves a version with the files that it has. The alias moves when it is promoted next.

    Raises:
        NotFoundError: there is no such model or version.
        UsageError: no name is given, or one with a colon, which separates name and key in a policy.
    """
    if not by.strip() or ":" in by:
        raise UsageError(f"--by {by!r}: expected the name of a person, without a colon")
    found = find_version(client, name, version)
    signer, record = own_signer(), align(client, found.name)
    keys = [] if signer is None else [signer.public_key]
    before = record.approvals(found.version, found.tags.get(MODEL_DIGEST_TAG, ""), keys)
    if not any(each.by == by.strip() and (each.keys or not keys) for each in before):
        append(client, found, APPROVED, {"approved_by": by.strip()})
    return found


def _is_stated(record: Record, champion: LoadedModel) -> bool:
    """Return whether a champion needs no new statement: it has one, of a trusted key if there is a key to sign with."""
    signer, version = own_signer(), record.current.champion or ""
    promotion = record.promotion(version)
    statements = [each.statement for each in (promotion, record.current) if each is not None]
    if promotion is None or promotion.statement is None:
        return False
    if promotion.statement.predicate.get(CALIBRATION) not in (None, champion.calibration_digest):
        return False
    keys = [] if signer is None else [signer.public_key, *trusted_keys(default_trust())]
    return signer is None or all(each is not None and each.verified_by(keys) for each in statements)


def _carry_out(
    client: mlflow.MlflowClient, promotion: Promotion, record: Record, evidence: Mapping[str, Any], lake: Lake
) -> Promotion:
    """State the decision, which promotes the candidate where it is positive, and return the result."""
    candidate, decision, change = promotion.candidate, promotion.decision, record.current
    if decision.is_promoted:
        champions = (candidate.version, *change.champions[change.champion == candidate.version :])
        name, values = candidate.name, promotion.to_json()
        if change_champion(client, name, record.changes[-1], champions, decision=values, evidence=evidence, lake=lake):
            return promotion
        now = record_of(client, name).current.champion
        if now == candidate.version:
            return replace(promotion, decision=replace(decision, checks=(ALREADY,)))
        before = "none" if promotion.champion is None else f"version {promotion.champion}"
        reason = (
            f"the champion changed from {before} to version {now} while this one was judged: promote it again to "
            "have it judged against the new champion"
        )
        promotion = replace(promotion, decision=refuse(decision, "unchanged", reason))
    append(client, candidate, JUDGED, {"decision": promotion.to_json()}, lake=lake)
    return promotion


def _target(candidate: ModelVersion, lake: Lake | None, dataset: str | None) -> tuple[str, Lake]:
    """Return the NAME@VERSION a candidate is scored on, and the lake it is in."""
    tags: Mapping[str, str] = candidate.tags
    if lake is None and LAKE_TAG not in tags:
        raise UsageError(f"{candidate.uri}: expected a tag with the lake of its data set, found none; give --lake")
    lake = lake or Lake.at(tags[LAKE_TAG])
    if dataset is None and not {DATASET_TAG, VERSION_TAG} <= tags.keys():
        raise UsageError(f"{candidate.uri}: expected the tags {DATASET_TAG} and {VERSION_TAG}, found {sorted(tags)}")
    target = dataset or f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}"
    try:
        return "@".join(lake.find(target)), lake
    except NotFoundError as problem:
        if dataset is not None:
            raise
        raise NotFoundError(
            f"{candidate.uri} was trained on {target}: {problem}; give its lake with --lake"
        ) from problem
