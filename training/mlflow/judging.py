"""Scoring candidate, champion and best champion for the gate, on the data sets that its policy names; and verifying.

The same data and the same models give the same scores, so that whoever has both can judge again. The statement on a
champion says beside the decision what that takes; the model's files, which hold its configuration, are the statement's
subject:

    trained_on     NAME@VERSION of the data set, SHA-256 of its manifest, which names every shard's
    judged_on      the same of the target and the guard sets, with their splits; not of a rollback
    calibration    digest of what gives its links their probability; empty: it has none
    replaces       the champion before, and why that one was tainted where it was
    code           version of this package, SHA-256 of its sources
    libraries      versions of what scores depend on
    processor      its kind: with the same code and libraries it gives the same scores to the last bit, for a shard is
                   scored by one thread

A champion is verified on any machine that can read registry and lake (`verify_champion`); the first difference is an
error that names its place:

- each statement with the one before it and with trusted keys, an approval with the decision;
- the registry's alias and tags with the statements;
- every file of the model, its calibration, and every file of the data sets that it was trained and judged on, with
  their digests;
- in depth: the scores with those of the same models on the same documents, now. On the same kind of processor, with the
  same code and libraries, they are the same to the last bit. Elsewhere, each mean that decided must be within
  `TOLERANCE` points, and each condition must come out as it did.
"""

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import mlflow
import torch
from securesystemslib.signer import Key

from schemas.configs import restore
from schemas.documents import Split
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest, verify
from schemas.messages import IntegrityError, NotFoundError, Say, UsageError
from schemas.parts import read_part, split_parts
from schemas.versions import code_digest, code_version
from training.config import Select
from training.evaluation.evaluate import Evaluation
from training.evaluation.models import evaluate_model
from training.loop.context import choose_device
from training.metrics.intervals import Interval
from training.metrics.preference import Preference
from training.mlflow.gate import Contest, Decision, contest_of, decide, refuse
from training.mlflow.loading import load_version
from training.mlflow.policy import By, Guard, Measure, Policy
from training.mlflow.registry import DATASET_DIGEST_TAG, registered
from training.model import ModelCard
from training.promotions.loaded import LoadedModel
from training.promotions.proof import (
    CALIBRATION,
    CALIBRATION_FILE,
    CHANGING,
    Proof,
    check_calibration,
    check_files,
    check_manifests,
    prove,
)
from training.promotions.record import Approval, ModelVersion, Record, Taint, read_record

CODE = ("schemas", "training")
LIBRARIES = ("torch", "numpy", "scipy", "pyarrow")
TARGET, GUARD = "target", "guard"
GATE_SPLIT = "gate"
TOLERANCE = 0.1  # percentage points
NOT_SCORED = ("latest", "editors")  # checks that say what was so on that day
NOT_HELD_OUT = (
    "its epoch was chosen by scores on the validation split, so its scores there are too high; judge it on held-out "
    "documents: a split `gate` of the data set, or another split in the policy"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingData:
    """The data that candidates are judged on.

    Attributes:
        lake: holds it.
        target: NAME@VERSION that the models are for.
        split: of the target.
        guards: NAME@VERSION and split of each of the policy's guard sets, by its name.
        latest: NAME@VERSION of the target's latest version; None: not asked for.
    """

    lake: Lake
    target: str
    split: str
    guards: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    latest: str | None = None


def find_judging_data(lake: Lake, target: str, *, split: str, guards: Sequence[Guard]) -> JudgingData:
    """Return what candidates are judged on now: NAME@VERSION and the latest versions of guard sets.

    Raises:
        NotFoundError: a data set is not in the lake.
    """
    latest = {guard.dataset: "@".join(lake.find(guard.dataset)) for guard in guards}
    return JudgingData(
        lake=lake,
        target=target,
        split=gate_split(lake, target, split),
        guards={name: (reference, gate_split(lake, reference)) for name, reference in latest.items()},
        latest="@".join(lake.find(target.partition("@")[0])),
    )


def judge(
    candidate: LoadedModel,
    data: JudgingData,
    policy: Policy,
    *,
    rivals: Sequence[ModelVersion],
    attempt: int,
    approvals: Sequence[Approval] = (),
    preference: Preference | None = None,
    taint: Taint | None = None,
    say: Say,
) -> Decision:
    """Return the decision by the models' scores.

    Candidate, champion and best champion are scored on the target, the first two on the guard sets; models with the
    same files are scored once.

    Args:
        candidate: to be judged; a registered version.
        data: data sets and splits.
        policy: settings of the rule.
        rivals: what it is judged against: the champion, if there is one, and the best champion where that is another.
        attempt: how many candidates the best champion has met with this one.
        approvals: of the candidate.
        preference: of editors, between champion and candidate.
        taint: why the candidate is tainted; None: it is not.
        say: takes a line of progress.

    Raises:
        UsageError: a model cannot be scored on a data set.
        IntegrityError: a model's files are not those that were registered.
    """
    models = [candidate, *map(load_version, rivals)]

    def contest(reference: str, split: str, measure: Measure, count: int = 2) -> Contest:
        scored: dict[str, Evaluation] = {}
        for each in models[:count]:
            if each.digest not in scored:
                say(f"scoring {each.uri} on {reference}, split {split}")
                scored[each.digest] = _evaluate(each, data.lake, reference, split, measure)
        found = [scored[each.digest] for each in models[:count]]
        by = {By.LANGUAGE, *(each.by for each in policy.groups)} if reference == data.target else ()
        groups = {str(each): _groups(data.lake, reference, split, each) for each in by}
        return contest_of(reference, split, found, measure, attempt=attempt, groups=groups)

    own = contest(data.target, data.split, policy.measure, count=len(models))
    guards = {
        guard.dataset: contest(*data.guards[guard.dataset], guard.measure)
        for guard in (policy.guards if rivals else ())
    }
    decision = decide(own, policy, guards=guards, latest=data.latest, approvals=approvals, preference=preference)
    if any(chose_epoch(candidate.model.card, each) for each in (own, *guards.values())):
        decision = refuse(decision, "held out", NOT_HELD_OUT)
    if taint is not None:
        decision = refuse(decision, "taint", f"it was {taint}: promote one that was not")
    return decision


def _evaluate(model: LoadedModel, lake: Lake, reference: str, split: str, measure: Measure) -> Evaluation:
    try:
        return evaluate_model(model.model, lake, reference, split, with_pairs=measure is Measure.RECIPROCAL_RANK)
    except UsageError as problem:
        raise UsageError(f"{model.uri}: {problem}") from problem


def _groups(lake: Lake, reference: str, split: str, by: By) -> dict[str, str]:
    """Return document id -> language, or source, of a split."""
    manifest, folder = read_manifest(lake, reference)
    column = "provenance" if by is By.SOURCE else str(by)
    rows = (
        row
        for documents, _ in split_parts(manifest, split)
        for row in read_part(folder, documents, ["id", column]).to_pylist()
    )
    return {row["id"]: row[column]["source"] if by is By.SOURCE else row[column] for row in rows}


def chose_epoch(model: ModelCard, contest: Contest) -> bool:
    """Return whether a model's epoch was chosen by what it is judged by: on the validation split of its own data set.

    By links, where the loss of its objective reads them; by ranks, where retrieval decides. Another version of the data
    set has the same documents in that split.
    """
    is_own = contest.dataset.partition("@")[0] == model.data.reference.partition("@")[0]
    by_links = bool(model.config.needs.links) and model.config.training.select is Select.LOSS
    by_ranks = contest.measure is Measure.RECIPROCAL_RANK and model.config.training.select in (
        Select.RETRIEVAL,
        Select.MEDIAN_RANK,
    )
    return is_own and contest.split == Split.VAL and (by_links or by_ranks)


def gate_split(lake: Lake, reference: str, named: str = "") -> str:
    """Return the split of NAME@VERSION to be judged on; a policy may name it."""
    return named or (GATE_SPLIT if GATE_SPLIT in read_manifest(lake, reference)[0].splits else Split.VAL.value)


def evidence_of(
    version: ModelVersion, record: Record, *, judged: JudgingData | None = None, calibration: str | None = None
) -> dict[str, Any]:
    """Return what a statement says of a version.

    Args:
        version: the new champion.
        record: of the model, with the champion before.
        judged: what it was judged on; None: it was not.
        calibration: digest of its calibration; None: the statement is not on that.
    """
    before = record.champion
    replaced = {"version": before, "tainted": str(record.taint(before or "") or "")}
    return {
        "trained_on": {"dataset": version.dataset, "sha256": version.tags.get(DATASET_DIGEST_TAG, "")},
        "judged_on": [] if judged is None else list(_judged_on(judged)),
        "replaces": None if before in (None, version.version) else replaced,
        **({} if calibration is None else {CALIBRATION: calibration}),
        **surroundings(),
    }


def surroundings() -> dict[str, Mapping[str, str]]:
    """Return what must be the same for scores to be the same to the last bit."""
    code = {"version": code_version(), "sha256": code_digest(*CODE)}
    return {
        "code": code,
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "processor": processor(),
    }


def processor() -> dict[str, str]:
    """Return what kind of processor scores are computed on here."""
    device = choose_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": device.type, "name": name, "capability": torch.backends.cpu.get_cpu_capability()}


def _judged_on(data: JudgingData) -> Iterator[dict[str, str]]:
    judged = [(TARGET, "", data.target, data.split), *((GUARD, n, *found) for n, found in data.guards.items())]
    for role, name, reference, split in judged:
        digest = hashlib.sha256(read_manifest(data.lake, reference)[1].read(MANIFEST)).hexdigest()
        yield {"role": role, "name": name, "dataset": reference, "split": split, "sha256": digest}


def verify_champion(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    keys: Sequence[Key],
    lake: Lake | None = None,
    is_deep: bool = False,
    say: Say,
) -> tuple[Proof, list[str]]:
    """Compare a champion with what was promoted; return the statements on it, and what was compared, a sentence each.

    Args:
        client: of the registry.
        name: registered model.
        version: `champion`, or the number of one that is or was.
        keys: that are trusted.
        lake: holds chain and data; None: the one that the registry names.
        is_deep: whether to score it again.
        say: takes a line of progress.

    Raises:
        UsageError: the record is not signed.
        NotFoundError: there is no such model or version, or a data set version is not in the lake any more.
        IntegrityError: something is not as it was promoted; the message names the place.
    """
    record = read_record(registered(client, name), lake, keys=keys)
    proof = prove(record, record.number(version))
    return proof, list(_findings(proof, lake or proof.lake, is_deep=is_deep, say=say))


def _findings(proof: Proof, lake: Lake, *, is_deep: bool, say: Say) -> Iterator[str]:
    statement, count = proof.statement, len(proof.record.chain)
    yield f"{count} statements follow one another, signed by trusted keys; {statement.where} by {statement.signers[0]}"
    say(f"reading the files of {proof.uri}")
    candidate = load_version(proof.record.model.versions[proof.version])
    check_files(proof.promotion, candidate.files)
    yield f"all {len(candidate.files)} files of the version are those that were promoted; its model is {proof.digest}"
    yield f"not compared, since they change later: {', '.join(name for name in CHANGING if name != CALIBRATION_FILE)}"
    check_calibration(proof, candidate.calibration_digest)
    if proof.promotion.predicate.get(CALIBRATION):
        yield f"its calibration has the digest {proof.promotion.predicate[CALIBRATION]}"
    there, gone = check_manifests(proof, lake)
    for reference in there:
        say(f"reading the files of {reference}")
        manifest, home = read_manifest(lake, reference)
        for difference in verify(manifest, home):
            raise IntegrityError(f"{reference}: {difference}")
        yield f"all {len(manifest.files)} files of {reference} are those of its manifest"
    for reference in gone:
        if reference not in proof.taken_out:
            raise NotFoundError(
                f"{lake.root.uri}: {reference}, on which {proof.uri} was trained or judged, is no longer in the lake, "
                "and no signed statement on a removal from it was found"
            )
        yield f"something was taken out of {reference} after the promotion, so its files cannot be compared"
    if is_deep and gone:
        yield "its scores cannot be compared"
    elif is_deep:
        yield _scored_again(candidate, proof, lake, say=say)


def _scored_again(candidate: LoadedModel, proof: Proof, lake: Lake, *, say: Say) -> str:
    """Judge again as a statement says, and return in which sense the outcome is the same."""
    promotion, was, there = proof.promotion, proof.promotion.decision, proof.record.model.versions
    predicate, where = promotion.predicate, promotion.where
    before, best = was["champion_before"], was["best_before"]
    if deleted := sorted({before, best} - {None, *there}):
        raise NotFoundError(
            f"{where}: {proof.uri} was compared with version {' and '.join(deleted)}, which was deleted, so it cannot "
            "be scored again; without --deep everything else is verified"
        )
    rivals = [there[each] for each in dict.fromkeys((before, best)) if each]
    guards = {each["name"]: (each["dataset"], each["split"]) for each in predicate["judged_on"]}
    target, split = guards.pop("")
    data = JudgingData(lake=lake, target=target, split=split, guards=guards)
    policy = replace(restore(Policy, was["policy"]), editors_preferred=False)
    approvals = proof.record.approvals(proof.version, candidate.files, before=promotion.number)
    decision = judge(candidate, data, policy, rivals=rivals, attempt=was["attempt"], approvals=approvals, say=say)
    here = surroundings()
    other = " and ".join(key for key, value in here.items() if predicate[key] != value)
    if not other:
        if decision.scores != was["scores"]:
            raise IntegrityError(
                f"{where}: its scores have digest {was['scores']}; on the same kind of processor they are now "
                f"{decision.scores}"
            )
        _compare(decision, was, where, tolerance=0.0)
        return f"its {decision.documents} documents are scored as they were, to the last bit"
    _compare(decision, was, where, tolerance=TOLERANCE)
    bits = "; the scores are the same to the last bit" if decision.scores == was["scores"] else ""
    return f"with another {other}, each condition comes out as it did, means within {TOLERANCE:g} points{bits}"


def _compare(decision: Decision, was: Mapping[str, Any], where: str, *, tolerance: float) -> None:
    recorded = {each["name"]: each for each in was["checks"] if each["name"] not in NOT_SCORED}
    found = {each.name: each for each in decision.checks}
    if recorded.keys() != found.keys():
        raise IntegrityError(f"{where}: expected the conditions {', '.join(recorded)}, found {', '.join(found)}")
    for name, check in found.items():
        is_near = _is_near(check.measured, recorded[name]["measured"], tolerance)
        if check.is_passed != recorded[name]["is_passed"] or not is_near:
            raise IntegrityError(f"{where}: expected {recorded[name]['reason']}; judged again: {check.reason}")


def _is_near(found: Interval | None, recorded: Mapping[str, Any] | None, tolerance: float) -> bool:
    """Return whether two means are at most so many percentage points apart; no mean is near to no mean alone."""
    if found is None or recorded is None:
        return found is None and recorded is None
    return abs(found.mean - float(recorded["mean"])) <= tolerance
