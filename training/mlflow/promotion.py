"""The promotion gate: score candidate and champion on the same data, decide, record, move the alias; and the way back.

The rule is `gate.py`'s, its settings are `policy.py`'s. The decision is kept in the log of champions, as a tag of the
candidate's version and as a file of its run; a refusal in the latter two; a dry run leaves nothing behind.

Who is champion after whom is a log that only grows, so that two successors cannot both win and none is half done.
MLflow's aliases can be set, not compared and set. What a registry does decide in one transaction, whatever its database
and also through its server, is the number of a new model version. So a change of champion is one version of the
registered model `<name>.champions`, an entry, that says which entry it follows. It counts if that was the last one that
counted before it; of two that follow the same entry the one with the smaller number counts, and the other never will,
whoever looks and whenever (compare-and-set by replaying a totally ordered log: Schneider 1990).

    entry 1   follows 0   line 3      counts
    entry 2   follows 1   line 5 3    counts: 5 replaces 3
    entry 3   follows 1   line 4 3    came too late, never counts
    entry 4   follows 2   line 3      counts: 5 was rolled back

An entry names the registered model by the time at which that was made. Where a model was deleted and made anew, its
versions are numbered from 1 again: the entries of the old one, which stay in the log, are passed over.

The aliases `champion` and `previous_champion` are a copy of the last entry that counts, made by `settle`: before the
entry is written they are the old ones, and a process that dies right after it leaves them old until anyone settles. An
alias that was set by hand is put right then, too; before the first entry the aliases themselves are what counts.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from schemas.console import Say
from schemas.documents import Split
from schemas.errors import BuildError, GateError, NotFoundError, UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.evaluation.evaluate import evaluate_model
from training.mlflow.gate import Check, Contest, Decision, contest_of, decide, refuse
from training.mlflow.policy import STANDARD_POLICY, Measure, Policy
from training.mlflow.registry import (
    APPROVED_TAG,
    CHAMPION,
    DECISION_TAG,
    LOG_SUFFIX,
    PREVIOUS_CHAMPION,
    ModelVersion,
    find_model,
    find_version,
    load_version,
    make_name,
    versions,
)
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, VERSION_TAG

FOLLOWS, LINE, TOKEN, DECISION, MODEL = "follows", "line", "token", "decision", "model_created"
REMEMBERED = 100
ATTEMPTS = 5
PAUSE_S = 0.05
GATE_SPLIT = "gate"
ALREADY = Check(name="champion", is_passed=True, reason="it is the champion already")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """Who is champion, and who was before.

    Attributes:
        entry: number of the entry that says so; 0: none does, the aliases do.
        line: versions, the champion's first, then those that a rollback would go back to.
        token: what the writer of the entry knows it by.
        decision: what it was decided by, as JSON; None before the first entry.
        since_ms: when the entry was written, milliseconds since 1970 by the registry's clock; 0 before the first.
    """

    entry: int
    line: tuple[str, ...]
    token: str = ""
    decision: str | None = None
    since_ms: int = 0

    @property
    def champion(self) -> str | None:
        return self.line[0] if self.line else None

    @property
    def previous(self) -> str | None:
        return self.line[1] if len(self.line) > 1 else None


def current(client: mlflow.MlflowClient, name: str) -> Reign:
    """Return the reign the log ends with, whatever the aliases say; versions that were deleted are passed over.

    Raises:
        NotFoundError: there is no such model.
    """
    reign = reigns(client, name)[-1]
    known = {found.version for found in versions(client, f"name = '{name}'")} if reign.entry else set(reign.line)
    return replace(reign, line=tuple(version for version in reign.line if version in known))


def settle(client: mlflow.MlflowClient, name: str) -> Reign:
    """Make the aliases say what the log says, and return it.

    A slow process may set them to what has meanwhile passed; it looks again afterwards, and then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
    """
    reign = current(client, name)
    while True:
        if reign.entry:
            _point(client, name, PREVIOUS_CHAMPION, reign.previous)
            _point(client, name, CHAMPION, reign.champion)
        now = current(client, name)
        if now.entry == reign.entry:
            return reign
        reign = now


def succeed(client: mlflow.MlflowClient, name: str, reign: Reign, line: tuple[str, ...], *, decision: str) -> bool:
    """Let `reign` be followed by another line; return whether it is, False where someone else came first.

    Raises:
        BuildError: the registry could not be written.
    """
    token, made = uuid.uuid4().hex, str(find_model(client, name).creation_timestamp)
    tags = {FOLLOWS: str(reign.entry), LINE: " ".join(line[:REMEMBERED]), TOKEN: token, DECISION: decision, MODEL: made}
    make_name(client, name + LOG_SUFFIX)
    # Written twice, because an answer was lost, it still counts once: the second follows what the first does.
    source = f"models:/{name}/{line[0]}"
    _insist(name, partial(client.create_model_version, name + LOG_SUFFIX, source=source, tags=tags))
    is_written = any(past.token == token for past in reigns(client, name))
    settle(client, name)
    return is_written


def reigns(client: mlflow.MlflowClient, name: str) -> list[Reign]:
    """Return the reigns that count, in order, from the one before the first entry.

    That one is what the aliases say, and means nothing once there are entries.

    Raises:
        NotFoundError: there is no such model.
    """
    model = find_model(client, name)
    first = (str(model.aliases[alias]) for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    found, made = [Reign(entry=0, line=tuple(first))], str(model.creation_timestamp)
    for entry in reversed(versions(client, f"name = '{model.name}{LOG_SUFFIX}'")):
        tags = entry.tags
        if (tags.get(MODEL), tags[FOLLOWS]) == (made, str(found[-1].entry)):
            reign = Reign(
                entry=int(entry.version),
                line=tuple(tags[LINE].split()),
                token=tags[TOKEN],
                decision=tags[DECISION],
                since_ms=entry.made_at_ms,
            )
            found.append(reign)
    return found


def _point(client: mlflow.MlflowClient, name: str, alias: str, version: str | None) -> None:
    known = find_model(client, name).aliases.get(alias)
    if version is None and known is not None:
        _insist(name, partial(client.delete_registered_model_alias, name, alias))
    elif version is not None and str(known) != version:
        _insist(name, partial(client.set_registered_model_alias, name, alias, version))


def _insist(name: str, write: Callable[[], object]) -> None:
    """Write, again where the registry refuses: two who write the same row at the same moment disturb each other."""
    for attempt in range(ATTEMPTS):
        try:
            write()
            return
        except MlflowException as problem:
            if attempt == ATTEMPTS - 1:
                why = str(problem).splitlines()[0]
                raise BuildError(f"model '{name}': the registry could not be written: {why}") from problem
            time.sleep(PAUSE_S * 2**attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What became of a candidate.

    Attributes:
        candidate: the version that was to be promoted.
        champion: number of the champion before, if any.
        decision: what was decided and why.
        is_dry_run: whether nothing was moved or recorded.
    """

    candidate: ModelVersion
    champion: str | None
    decision: Decision
    is_dry_run: bool

    def to_json(self) -> dict[str, Any]:
        return self.decision.to_json() | {
            "model": self.candidate.name,
            "version": self.candidate.version,
            "champion_before": self.champion,
            "approved_by": self.candidate.tags.get(APPROVED_TAG, ""),
            "is_dry_run": self.is_dry_run,
        }


def promote(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    lake: Lake | None = None,
    dataset: str | None = None,
    policy: Policy = STANDARD_POLICY,
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
        is_dry_run: decide, but record and move nothing.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version, or a data set version or split is not in the lake.
        UsageError: the version says not what it was trained on, or a model cannot be scored on it.
        IntegrityError: a model's files are not those that were registered.
    """
    candidate = find_version(client, name, version)
    reign = (current if is_dry_run else settle)(client, candidate.name)
    target, lake = _target(candidate, lake, dataset)
    split = _split(lake, target, policy.split)
    if reign.champion == candidate.version:
        decision = Decision(checks=(ALREADY,), dataset=target, split=split, policy=policy)
        if not is_dry_run and reign.decision is not None and "checks" in json.loads(reign.decision):
            _record(client, candidate, reign.decision)  # whoever promoted it may not have lived to
        return Promotion(candidate=candidate, champion=reign.champion, decision=decision, is_dry_run=is_dry_run)
    champion = None if reign.champion is None else find_version(client, candidate.name, reign.champion)
    decision = _judge(candidate, champion, lake=lake, target=target, split=split, policy=policy, say=say)
    promotion = Promotion(candidate=candidate, champion=reign.champion, decision=decision, is_dry_run=is_dry_run)
    return promotion if is_dry_run else _carry_out(client, promotion, reign)


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
    reign = settle(client, name)
    if champion is not None and champion != reign.champion:
        raise GateError(f"model '{name}': expected version {champion} as champion, found {reign.champion or 'none'}")
    if reign.champion is None or reign.previous is None:
        raise GateError(f"model '{name}' has no champion to go back to: no {PREVIOUS_CHAMPION}")
    restored = find_version(client, name, reign.previous)
    record = {"is_rollback": True, "version": reign.previous, "champion_before": reign.champion}
    if not succeed(client, name, reign, reign.line[1:], decision=json.dumps(record, sort_keys=True)):
        raise GateError(f"model '{name}': its champion changed at this moment; look, and roll back again if need be")
    return restored, reign.champion


def _judge(
    candidate: ModelVersion,
    champion: ModelVersion | None,
    *,
    lake: Lake,
    target: str,
    split: str,
    policy: Policy,
    say: Say,
) -> Decision:
    """Return the decision from both models' scores on the target, and on the guard sets where there is a champion."""
    rivals = [(each, load_version(each).model) for each in (candidate, champion) if each is not None]
    guards = policy.guards if champion is not None else ()
    found = {guard.dataset: "@".join(lake.find(guard.dataset)) for guard in guards}

    def contest(reference: str, part: str, measure: Measure) -> Contest:
        scored = []
        for version, model in rivals:
            say(f"scoring {version.uri} on {reference}, split {part}")
            try:
                scored.append(evaluate_model(model, lake, reference, part, with_pairs=measure.is_of_retrieval))
            except UsageError as problem:
                raise UsageError(f"{version.uri}: {problem}") from problem
        return contest_of(reference, part, scored, measure)

    return decide(
        contest(target, split, policy.measure),
        policy,
        guards={
            each.dataset: contest(found[each.dataset], _split(lake, found[each.dataset], each.split), each.measure)
            for each in guards
        },
        latest="@".join(lake.find(target.partition("@")[0])),
        approved_by=candidate.tags.get(APPROVED_TAG, ""),
    )


def _carry_out(client: mlflow.MlflowClient, promotion: Promotion, reign: Reign) -> Promotion:
    """Record the decision and, where it is to promote, do; return what came of it."""
    candidate, decision = promotion.candidate, promotion.decision
    line = (candidate.version, *reign.line)
    if decision.is_promoted and not succeed(client, candidate.name, reign, line, decision=_text(promotion)):
        now = current(client, candidate.name).champion
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
        raise UsageError(f"{candidate.uri}: its tags do not say which lake its data set is in; give --lake")
    lake = lake or Lake.at(tags[LAKE_TAG])
    if dataset is None and not {DATASET_TAG, VERSION_TAG} <= tags.keys():
        raise UsageError(f"{candidate.uri}: expected the tags {DATASET_TAG} and {VERSION_TAG}, found {sorted(tags)}")
    wanted = dataset or f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}"
    try:
        return "@".join(lake.find(wanted)), lake
    except NotFoundError as problem:
        if dataset is not None:
            raise
        raise NotFoundError(f"{candidate.uri} is of {wanted}: {problem}; give its lake with --lake") from problem


def _split(lake: Lake, reference: str, wanted: str) -> str:
    """Return the split of NAME@VERSION to be judged on."""
    return wanted or (GATE_SPLIT if GATE_SPLIT in read_manifest(lake, reference)[0].splits else Split.VAL.value)


def _text(promotion: Promotion) -> str:
    return json.dumps(promotion.to_json(), sort_keys=True)


def _record(client: mlflow.MlflowClient, candidate: ModelVersion, text: str) -> None:
    """Keep a decision with its version: as a file of the run first, so that the tag is there only where both are."""
    if candidate.tags.get(DECISION_TAG) == text:
        return
    if candidate.run_id is not None:
        client.log_text(candidate.run_id, text + "\n", f"promotion/{candidate.name}-{candidate.version}.json")
    client.set_model_version_tag(candidate.name, candidate.version, DECISION_TAG, text)
