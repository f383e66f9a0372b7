"""The promotion gate: score candidate and champion on the same data, decide, record, move the alias; and the way back.

The rule is in `gate.py`, its settings are in `policy.py`, models are scored in `judging.py`. A decision is a tag of the
candidate's version and a file of its run. Where it makes a champion, it is also in the chain of statements
(`champions.py`), with what it rests on (`evidence.py`). A dry run leaves nothing behind.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mlflow

from schemas.console import Say
from schemas.errors import GateError, NotFoundError, UsageError
from schemas.lake import Lake
from training.mlflow.champions import (
    BEST,
    BEST_BEFORE,
    ChampionEntry,
    align_aliases,
    append_entry,
    best_champion,
    last_entry,
)
from training.mlflow.evidence import evidence_of
from training.mlflow.gate import Check, Decision, refuse
from training.mlflow.judging import Rivals, find_ground, judge
from training.mlflow.policy import STANDARD_POLICY, Policy
from training.mlflow.registry import (
    APPROVED_TAG,
    DECISION_TAG,
    ModelVersion,
    find_model,
    find_version,
    versions,
)
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, VERSION_TAG
from training.retrieval.interleaving import Preference

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
        is_best: whether the candidate's mean reaches that one's on the documents it was judged on.
    """

    candidate: ModelVersion
    champion: str | None
    decision: Decision
    is_dry_run: bool
    best: str | None = None
    is_best: bool = False

    def to_json(self) -> dict[str, Any]:
        return self.decision.to_json() | {
            "model": self.candidate.name,
            "version": self.candidate.version,
            "champion_before": self.champion,
            "approved_by": self.candidate.tags.get(APPROVED_TAG, ""),
            "is_dry_run": self.is_dry_run,
            BEST_BEFORE: self.best,
            BEST: self.candidate.version if self.is_best and self.decision.is_promoted else self.best,
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
    entry = (last_entry if is_dry_run else align_aliases)(client, candidate.name)
    target, lake = _target(candidate, lake, dataset)
    has_rival = entry.champion not in (None, candidate.version)
    ground = find_ground(lake, target, split=policy.split, guards=policy.guards if has_rival else ())
    if entry.champion == candidate.version:
        decision = Decision(checks=(ALREADY,), dataset=target, split=ground.split, policy=policy)
        if not is_dry_run and entry.decision is not None and "checks" in json.loads(entry.decision):
            _record(client, candidate, entry.decision)  # the process that promoted it may have been killed before
        return Promotion(candidate=candidate, champion=entry.champion, decision=decision, is_dry_run=is_dry_run)
    rivals = _rivals(client, candidate, entry)
    if policy.editors.preferred and preferred is not None and rivals.champion is not None:
        rivals = replace(rivals, preference=preferred(lake, rivals.champion.uri, candidate.uri))
    approved_by = candidate.tags.get(APPROVED_TAG, "")
    decision, is_best = judge(candidate, rivals, ground, policy, approved_by=approved_by, say=say)
    promotion = Promotion(
        candidate=candidate,
        champion=entry.champion,
        decision=decision,
        is_dry_run=is_dry_run,
        best=rivals.best.version if rivals.best else entry.champion,
        is_best=is_best,
    )
    if is_dry_run:
        return promotion
    return _carry_out(
        client, promotion, entry, evidence_of(client, candidate, ground=ground, replaces=rivals.champion), lake
    )


def rollback(client: mlflow.MlflowClient, name: str, *, champion: str | None = None) -> tuple[ModelVersion, str]:
    """Make the previous champion the champion again, and return it and the number of the one it replaces.

    The champion before it is then the previous one.

    Args:
        client: of the registry.
        name: registered model.
        champion: version that is to be replaced, so that a repeated call goes back once; None: whichever it is.

    Raises:
        NotFoundError: there is no such model, or the previous champion was deleted.
        GateError: there is no previous champion, another version is champion, or someone else was faster.
    """
    name = find_model(client, name).name
    entry = align_aliases(client, name)
    if champion is not None and champion != entry.champion:
        raise GateError(f"model '{name}': expected version {champion} as champion, found {entry.champion or 'none'}")
    if entry.champion is None or entry.previous is None:
        found = "none is champion" if entry.champion is None else "the present one is the first"
        raise GateError(f"model '{name}' has no champion to go back to: {found}")
    restored = find_version(client, name, entry.previous)
    best = best_champion(client, name, entry)
    record = {
        "is_rollback": True,
        "version": entry.previous,
        "champion_before": entry.champion,
        BEST: entry.previous if best == entry.champion else best,
    }
    if not append_entry(
        client,
        name,
        entry,
        entry.champions[1:],
        decision=json.dumps(record, sort_keys=True),
        evidence=evidence_of(client, restored, replaces=find_version(client, name, entry.champion)),
    ):
        raise GateError(
            f"model '{name}': its champion was changed by another process meanwhile; see multilink promotions {name}, "
            "and roll back again if it is still needed"
        )
    return restored, entry.champion


def _rivals(client: mlflow.MlflowClient, candidate: ModelVersion, entry: ChampionEntry) -> Rivals:
    if entry.champion is None:
        return Rivals(None, None, 1)
    best = best_champion(client, candidate.name, entry) or entry.champion
    judged = (
        json.loads(version.tags.get(DECISION_TAG, "{}")).get(BEST_BEFORE)
        for version in versions(client, f"name = '{candidate.name}'")
        if version.version != candidate.version
    )
    return Rivals(
        champion=find_version(client, candidate.name, entry.champion),
        best=None if best == entry.champion else find_version(client, candidate.name, best),
        attempt=1 + sum(before == best for before in judged),
    )


def _carry_out(
    client: mlflow.MlflowClient, promotion: Promotion, entry: ChampionEntry, evidence: Mapping[str, Any], lake: Lake
) -> Promotion:
    """Record the decision, promote the candidate where it is positive, and return the result."""
    candidate, decision = promotion.candidate, promotion.decision
    champions = (candidate.version, *entry.champions)
    if decision.is_promoted and not append_entry(
        client,
        candidate.name,
        entry,
        champions,
        decision=_text(promotion),
        evidence=evidence,
        lake=lake,
    ):
        now = last_entry(client, candidate.name).champion
        if now == candidate.version:
            return replace(promotion, decision=replace(decision, checks=(ALREADY,)))
        before = "none" if promotion.champion is None else f"version {promotion.champion}"
        reason = (
            f"the champion changed from {before} to version {now} while this one was judged: promote it again to "
            "have it judged against the new champion"
        )
        promotion = replace(promotion, decision=refuse(decision, "unchanged", reason))
    _record(client, candidate, _text(promotion))
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


def _text(promotion: Promotion) -> str:
    return json.dumps(promotion.to_json(), sort_keys=True)


def _record(client: mlflow.MlflowClient, candidate: ModelVersion, text: str) -> None:
    """Keep a decision with its version: as a file of the run first, so that the tag is there only where both are."""
    if candidate.tags.get(DECISION_TAG) == text:
        return
    if candidate.run_id is not None:
        client.log_text(candidate.run_id, text + "\n", f"promotion/{candidate.name}-{candidate.version}.json")
    client.set_model_version_tag(candidate.name, candidate.version, DECISION_TAG, text)
