"""The promotion gate: score candidate and champion on the same data, decide, record, move the alias; and the way back.

The rule is in `gate.py`, its settings are in `policy.py`. The decision is kept in the log of champions, as a tag of the
candidate's version and as a file of its run; a refusal in the latter two; a dry run leaves nothing behind.

Who is champion after whom is a log that only grows, so that two successors cannot both win and none is half done.
MLflow's aliases can be set, not compared and set. What a registry does decide in one transaction, whatever its database
and also through its server, is the number of a new model version. So a change of champion is one version of the
registered model `<name>.champions`, an entry, that names the entry it follows. It counts if that was the last one that
counted before it; of two that follow the same entry the one with the smaller number counts, and the other never will,
whichever process reads it and whenever (compare-and-set by replaying a totally ordered log: Schneider 1990).

    entry 1   follows 0   line 3      counts
    entry 2   follows 1   line 5 3    counts: 5 replaces 3
    entry 3   follows 1   line 4 3    came too late, never counts
    entry 4   follows 2   line 3      counts: 5 was rolled back

An entry names the registered model by the time at which that was made. Where a model was deleted and made anew, its
versions are numbered from 1 again: the entries of the old one, which stay in the log, are passed over.

The aliases `champion` and `previous_champion` are a copy of the last entry that counts, made by `align_aliases`: before
the entry is written they are the old ones, and a process that dies right after it leaves them old until the next call.
An alias that was set by hand is corrected then, too; before the first entry the aliases themselves are what counts.
"""

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
class ChampionEntry:
    """An entry of the log of champions.

    Attributes:
        number: of the entry; 0: there is none yet, and the aliases are what counts.
        champions: versions, the champion's first, then those that a rollback would go back to.
        token: by which its writer recognises it.
        decision: that it was made by, as JSON; None before the first entry.
        since_ms: when the entry was written, milliseconds since 1970 by the registry's clock; 0 before the first.
    """

    number: int
    champions: tuple[str, ...]
    token: str = ""
    decision: str | None = None
    since_ms: int = 0

    @property
    def champion(self) -> str | None:
        return self.champions[0] if self.champions else None

    @property
    def previous(self) -> str | None:
        return self.champions[1] if len(self.champions) > 1 else None


def last_entry(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Return the entry the log ends with, whatever the aliases are; versions that were deleted are passed over.

    Raises:
        NotFoundError: there is no such model.
    """
    name = find_model(client, name).name
    entry = champion_log(client, name)[-1]
    there = {found.version for found in versions(client, f"name = '{name}'")} if entry.number else set(entry.champions)
    return replace(entry, champions=tuple(version for version in entry.champions if version in there))


def align_aliases(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Set the aliases by the last entry of the log, and return that entry.

    A slow process may set them to an entry that another has followed meanwhile; so it reads the log again afterwards,
    and then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
    """
    entry, name = last_entry(client, name), find_model(client, name).name
    while True:
        if entry.number:
            _set_alias(client, name, PREVIOUS_CHAMPION, entry.previous)
            _set_alias(client, name, CHAMPION, entry.champion)
        latest = last_entry(client, name)
        if latest.number == entry.number:
            return entry
        entry = latest


def append_entry(
    client: mlflow.MlflowClient, name: str, last: ChampionEntry, champions: tuple[str, ...], *, decision: str
) -> bool:
    """Follow the entry `last` by one with other champions; return False where another process followed it first.

    Raises:
        BuildError: the registry could not be written.
    """
    model, token = find_model(client, name), uuid.uuid4().hex
    made, line = str(model.creation_timestamp), " ".join(champions[:REMEMBERED])
    tags = {FOLLOWS: str(last.number), LINE: line, TOKEN: token, DECISION: decision, MODEL: made}
    log, source = model.name + LOG_SUFFIX, f"models:/{model.name}/{champions[0]}"
    make_name(client, log)
    # An entry that is written twice, because the answer to the first was lost, counts once: both follow the same one.
    _write(model.name, partial(client.create_model_version, log, source=source, tags=tags))
    is_written = any(entry.token == token for entry in champion_log(client, model.name))
    align_aliases(client, model.name)
    return is_written


def champion_log(client: mlflow.MlflowClient, name: str) -> list[ChampionEntry]:
    """Return the entries that count, in order; before them one with the aliases, which count where there is no other.

    Raises:
        NotFoundError: there is no such model.
    """
    model = find_model(client, name)
    first = (str(model.aliases[alias]) for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    found, made = [ChampionEntry(number=0, champions=tuple(first))], str(model.creation_timestamp)
    for stored in reversed(versions(client, f"name = '{model.name}{LOG_SUFFIX}'")):
        tags = stored.tags
        if (tags.get(MODEL), tags[FOLLOWS]) == (made, str(found[-1].number)):
            entry = ChampionEntry(
                number=int(stored.version),
                champions=tuple(tags[LINE].split()),
                token=tags[TOKEN],
                decision=tags[DECISION],
                since_ms=stored.made_at_ms,
            )
            found.append(entry)
    return found


def _set_alias(client: mlflow.MlflowClient, name: str, alias: str, version: str | None) -> None:
    """Let an alias name a version, or none."""
    known = find_model(client, name).aliases.get(alias)
    if version is None and known is not None:
        _write(name, partial(client.delete_registered_model_alias, name, alias))
    elif version is not None and str(known) != version:
        _write(name, partial(client.set_registered_model_alias, name, alias, version))


def _write(name: str, write: Callable[[], object]) -> None:
    """Write, again where the registry refuses: two processes that write one row at once disturb each other."""
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
    """The result of a promotion.

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
        UsageError: the version has no tags of the data it was trained on, or a model cannot be scored on it.
        IntegrityError: a model's files are not those that were registered.
    """
    candidate = find_version(client, name, version)
    entry = (last_entry if is_dry_run else align_aliases)(client, candidate.name)
    target, lake = _target(candidate, lake, dataset)
    split = _split(lake, target, policy.split)
    if entry.champion == candidate.version:
        decision = Decision(checks=(ALREADY,), dataset=target, split=split, policy=policy)
        if not is_dry_run and entry.decision is not None and "checks" in json.loads(entry.decision):
            _record(client, candidate, entry.decision)  # the process that promoted it may have been killed before
        return Promotion(candidate=candidate, champion=entry.champion, decision=decision, is_dry_run=is_dry_run)
    champion = None if entry.champion is None else find_version(client, candidate.name, entry.champion)
    decision = _judge(candidate, champion, lake=lake, target=target, split=split, policy=policy, say=say)
    promotion = Promotion(candidate=candidate, champion=entry.champion, decision=decision, is_dry_run=is_dry_run)
    return promotion if is_dry_run else _carry_out(client, promotion, entry)


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
        raise GateError(f"model '{name}' has no champion to go back to: no {PREVIOUS_CHAMPION}")
    restored = find_version(client, name, entry.previous)
    record = {"is_rollback": True, "version": entry.previous, "champion_before": entry.champion}
    if not append_entry(client, name, entry, entry.champions[1:], decision=json.dumps(record, sort_keys=True)):
        raise GateError(
            f"model '{name}': its champion was changed by another process meanwhile; see multilink promotions {name}, "
            "and roll back again if it is still needed"
        )
    return restored, entry.champion


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
    """Return the decision by both models' scores on the target, and on the guard sets where there is a champion."""
    models = [(each, load_version(each).model) for each in (candidate, champion) if each is not None]
    guards = policy.guards if champion is not None else ()
    found = {guard.dataset: "@".join(lake.find(guard.dataset)) for guard in guards}

    def contest(reference: str, part: str, measure: Measure) -> Contest:
        scored = []
        for version, model in models:
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


def _carry_out(client: mlflow.MlflowClient, promotion: Promotion, entry: ChampionEntry) -> Promotion:
    """Record the decision, promote the candidate where it is positive, and return the result."""
    candidate, decision = promotion.candidate, promotion.decision
    champions = (candidate.version, *entry.champions)
    if decision.is_promoted and not append_entry(client, candidate.name, entry, champions, decision=_text(promotion)):
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


def _split(lake: Lake, reference: str, named: str) -> str:
    """Return the split of NAME@VERSION to be judged on."""
    return named or (GATE_SPLIT if GATE_SPLIT in read_manifest(lake, reference)[0].splits else Split.VAL.value)


def _text(promotion: Promotion) -> str:
    return json.dumps(promotion.to_json(), sort_keys=True)


def _record(client: mlflow.MlflowClient, candidate: ModelVersion, text: str) -> None:
    """Keep a decision with its version: as a file of the run first, so that the tag is there only where both are."""
    if candidate.tags.get(DECISION_TAG) == text:
        return
    if candidate.run_id is not None:
        client.log_text(candidate.run_id, text + "\n", f"promotion/{candidate.name}-{candidate.version}.json")
    client.set_model_version_tag(candidate.name, candidate.version, DECISION_TAG, text)
