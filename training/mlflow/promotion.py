"""The promotion gate: score candidate and champion on the same data, decide, state it; the way back; and approvals.

The rule is in `gate.py`, its settings are in `policy.py`, models are scored in `judging.py`. Each decision is a
statement of the record, one that makes a champion with what it rests on. Aliases and tags of the
registry follow it (`champions.py`). A dry run leaves nothing behind, and is not counted.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from schemas.configs import resolve
from schemas.lake import Lake
from schemas.messages import BuildError, GateError, Say, UsageError
from training.metrics.preference import Preference
from training.mlflow.champions import align, append, check_signer, inherited, record_of
from training.mlflow.gate import Check, Decision, refuse
from training.mlflow.judging import evidence_of, find_judging_data, gate_split, judge
from training.mlflow.loading import load_version
from training.mlflow.policy import STANDARD_POLICY, Policy
from training.mlflow.runs import CHOSEN_TAG, COPIED_TAG, PARENT_TAG
from training.project import command
from training.promotions.keys import own_signer
from training.promotions.loaded import LoadedModel
from training.promotions.proof import CALIBRATION, FILES
from training.promotions.record import (
    APPROVED,
    BEST,
    BEST_BEFORE,
    CELLS,
    CHANGED,
    EVALUATED,
    JUDGED,
    STUDY,
    ModelVersion,
    Record,
)

Preferred = Callable[[Lake, str, str], Preference | None]  # lake, address of the champion, of the candidate
MOST_CELLS = 10_000
REMEMBERED = 100  # champions that a statement names
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
        study: what the candidate was chosen in (`study_of`).
        cells: from how many.
    """

    candidate: ModelVersion
    champion: str | None
    decision: Decision
    is_dry_run: bool
    best: str | None = None
    study: str = ""
    cells: int = 1

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
            STUDY: self.study,
            CELLS: self.cells,
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
        IntegrityError: a model's files are not those that were registered, or the champion's version, or the best
            one's, is not in the registry any more.
    """
    record = (record_of if is_dry_run else align)(client, name)
    candidate = record.model.version(version)
    champion, lake, dataset = record.champion, lake or candidate.lake, dataset or candidate.dataset
    if not dataset:
        raise UsageError(f"{candidate.uri}: expected tags with the data set that it was trained on, found none")
    target = "@".join(lake.find(dataset))
    for each in {champion, record.best} - {None}:
        record.check_there(str(each))
    if not is_dry_run:
        check_signer(record)  # before minutes of scoring
    data = find_judging_data(lake, target, split=policy.split, guards=policy.guards if champion is not None else ())
    loaded = load_version(candidate)
    if champion == candidate.version and _is_stated(record, loaded, policy):
        return Promotion(
            candidate=candidate,
            champion=champion,
            decision=Decision(checks=(ALREADY,), dataset=target, split=data.split, policy=policy),
            is_dry_run=is_dry_run,
        )
    study, cells = study_of(client, candidate)
    rivals = [record.model.versions[each] for each in dict.fromkeys((champion, record.best)) if each]
    promotion = Promotion(
        candidate=candidate,
        champion=champion,
        decision=judge(
            loaded,
            data,
            policy,
            rivals=rivals,
            attempt=record.attempt(
                candidate.version, target, data.split, measure=policy.measure, study=study, cells=cells
            ),
            approvals=record.approvals(candidate.version, loaded.files),
            preference=preferred(lake, rivals[0].uri, candidate.uri)
            if preferred and policy.editors_preferred and champion is not None
            else None,
            taint=record.taint(candidate.version) or inherited(client, candidate.tags),
            say=say,
        ),
        is_dry_run=is_dry_run,
        best=record.best,
        study=study,
        cells=cells,
    )
    if is_dry_run:
        return promotion
    evidence = evidence_of(candidate, record, judged=data, calibration=loaded.calibration_digest)
    return _carry_out(client, promotion, record, evidence | {FILES: loaded.files}, lake)


def study_of(client: mlflow.MlflowClient, version: ModelVersion) -> tuple[str, int]:
    """Return what a version was chosen in, and from how many: the cells of a sweep, or what a copy says of its origin.

    It is ("", 1) where it was the only one.
    """
    if CHOSEN_TAG in version.tags:
        return f"copied from {version.tags[COPIED_TAG].rpartition('/')[0]}", int(version.tags[CHOSEN_TAG])
    with suppress(MlflowException):  # the run was deleted
        run = client.get_run(str(version.run_id))
        if parent := run.data.tags.get(PARENT_TAG):
            wanted = f"tags.`{PARENT_TAG}` = '{parent}'"
            return f"sweep {parent}", len(client.search_runs([run.info.experiment_id], wanted, max_results=MOST_CELLS))
    return "", 1


def count_look(
    client: mlflow.MlflowClient, version: ModelVersion, lake: Lake, reference: str, split: str
) -> str | None:
    """State that a version was scored on the documents that the gate judges by: it counts as a candidate.

    Returns:
        Why it could not be stated; None where it is, or where no candidate can be chosen by it: on another split,
        without a champion, or of one that is or was champion.
    """
    record = record_of(client, version.name)
    if split != gate_split(lake, reference) or record.best is None or version.version in record.champions:
        return None
    study, cells = study_of(client, version)
    look = {
        "dataset": reference,
        "split": split,
        STUDY: study,
        CELLS: cells,
        "champion_before": record.champion,
        BEST_BEFORE: record.best,
    }
    try:
        if not any(each.decision == look for each in record.about(version.version, EVALUATED)):
            append(client, record, version, EVALUATED, {"decision": look}, lake=lake)
    except (UsageError, BuildError) as problem:
        return str(problem)
    return None


def rollback(client: mlflow.MlflowClient, name: str, *, champion: str | None = None) -> tuple[ModelVersion, str]:
    """Make the champion before the champion again, and return it and the number of the one it replaces.

    Of those before it, the last one that can be champion again (`Record.can_return`).

    Args:
        client: of the registry.
        name: registered model.
        champion: version that is to be replaced, so that a repeated call goes back once; None: whichever it is.

    Raises:
        NotFoundError: there is no such model.
        GateError: there is no champion to go back to, another version is champion, or someone else was faster.
        IntegrityError: as `read_record` says: nothing is signed on top of what is not.
    """
    record = align(client, name)
    name, now = record.model.name, record.champion
    if champion is not None and champion != now:
        raise GateError(f"model '{name}': expected version {champion} as champion, found {now or 'none'}")
    line = record.champions
    place = next((place for place, each in enumerate(line) if place and record.can_return(each)), None)
    if now is None or place is None:
        found = "no earlier one" if len(line) == 1 else "the earlier ones were deleted, tainted or never promoted"
        raise GateError(f"model '{name}' has no champion to go back to: {found if now else 'there is no champion'}")
    restored, best = record.model.versions[line[place]], record.best
    if best == now:  # it is no champion any more, so the best one before it is the best again
        before = (each.decision.get(BEST_BEFORE) for each in reversed(record.about(now, CHANGED)))
        best = next((each for each in before if each not in (None, now)), restored.version)
    change = {
        "champions": line[place:],
        "decision": {"is_rollback": True, "version": restored.version, "champion_before": now, BEST: best},
        **evidence_of(restored, record),
    }
    if not append(client, record, restored, CHANGED, change):
        raise GateError(
            f"model '{name}': its champion was changed by another process meanwhile; see "
            f"{command('promotions', name, tracking=record.model.registry)}, and roll back again if it is still needed"
        )
    return restored, now


def approve(client: mlflow.MlflowClient, name: str, version: str, *, by: str) -> ModelVersion:
    """State who approves a version with the files that it has. The alias moves when it is promoted next.

    Raises:
        NotFoundError: there is no such model or version.
        UsageError: no name is given, or one with a colon, which separates name and key in a policy.
    """
    if not by.strip() or ":" in by:
        raise UsageError(f"--by {by!r}: expected the name of a person, without a colon")
    record = align(client, name)
    found = record.model.version(version)
    files = load_version(found).files
    signer = own_signer()
    own = {signer.public_key.keyid} if signer is not None else set()
    if not any(each.by == by.strip() and own <= {*each.keys} for each in record.approvals(found.version, files)):
        append(client, record, found, APPROVED, {"approved_by": by.strip(), FILES: files})
    return found


def _is_stated(record: Record, champion: LoadedModel, policy: Policy) -> bool:
    """Return whether a champion needs no new statement: the last decision has its files, calibration and the policy."""
    last = next((each for each in reversed(record.changes) if each.policy), None)
    return (
        last is not None
        and last == record.promotion(record.champion or "")  # else it was rolled back to
        and last.predicate.get(FILES) == champion.files
        and last.predicate.get(CALIBRATION) == champion.calibration_digest
        and last.policy == resolve(policy)
    )


def _carry_out(
    client: mlflow.MlflowClient, promotion: Promotion, record: Record, evidence: Mapping[str, Any], lake: Lake
) -> Promotion:
    """State the decision, which promotes the candidate where it is positive, and return the result."""
    candidate, decision = promotion.candidate, promotion.decision
    if decision.is_promoted:
        champions = (candidate.version, *record.champions[record.champion == candidate.version :])
        change = {"champions": champions[:REMEMBERED], "decision": promotion.to_json(), **evidence}
        if append(client, record, candidate, CHANGED, change, lake=lake):
            return promotion
        record = record_of(client, candidate.name)
        now = record.champion
        if now == candidate.version:
            return replace(promotion, decision=replace(decision, checks=(ALREADY,)))
        before = "none" if promotion.champion is None else f"version {promotion.champion}"
        reason = (
            f"the champion changed from {before} to version {now} while this one was judged: promote it again to "
            "have it judged against the new champion"
        )
        promotion = replace(promotion, decision=refuse(decision, "unchanged", reason))
    append(client, record, candidate, JUDGED, {"decision": promotion.to_json()}, lake=lake)
    return promotion
