"""Verifying a champion on any machine that can read registry and lake: statements, model, data, and the scores again.

What is compared with what, in order; the first difference is an error that names its place:

- each statement with the one before it and with trusted keys, an approval with the decision;
- the registry's alias and tags with the statements;
- every file of the model, its calibration, and every file of the data sets that it was trained and judged on, with
  their digests;
- in depth: the scores with those of the same models on the same documents, now. On the same kind of processor, with the
  same code and libraries, they are the same to the last bit. Elsewhere, each mean that decided must be within
  `TOLERANCE` points, and each condition must come out as it did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlflow
from securesystemslib.signer import Key

from schemas.configs import restore
from schemas.console import Say
from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify
from training.mlflow.gate import Check, Decision
from training.mlflow.judging import GUARD, TARGET, JudgingData, Rivals, judge, surroundings
from training.mlflow.loading import LoadedModel, load_version
from training.mlflow.policy import Policy
from training.mlflow.registry import find_version, registered
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
from training.promotions.record import read_record

TOLERANCE = 0.1  # percentage points
_NOT_SCORED = ("latest", "editors")  # checks that say what was so on that day


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
    return proof, list(_findings(client, proof, lake or proof.lake, is_deep=is_deep, say=say))


def _findings(client: mlflow.MlflowClient, proof: Proof, lake: Lake, *, is_deep: bool, say: Say) -> Iterator[str]:
    statement, count = proof.statement, len(proof.record.chain)
    yield f"{count} statements follow one another, signed by trusted keys; {statement.where} by {statement.signers[0]}"
    say(f"reading the files of {proof.uri}")
    candidate = load_version(find_version(client, proof.record.model.name, proof.version))
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
        yield _scored_again(client, candidate, proof, lake, say=say)


def _scored_again(client: mlflow.MlflowClient, candidate: LoadedModel, proof: Proof, lake: Lake, *, say: Say) -> str:
    """Judge again as a statement says, and return in which sense the outcome is the same."""
    promotion, was, name = proof.promotion, proof.promotion.decision, proof.record.model.name
    predicate, where = promotion.predicate, promotion.where
    before, best = was["champion_before"], was["best_before"]
    if deleted := sorted({before, best} - {None, *proof.record.model.versions}):
        raise NotFoundError(
            f"{where}: {proof.uri} was compared with version {' and '.join(deleted)}, which was deleted, so it cannot "
            "be scored again; without --deep everything else is verified"
        )
    rivals = Rivals(
        champion=None if before is None else find_version(client, name, before),
        best=None if best == before else find_version(client, name, best),
        attempt=was["attempt"],
    )
    target = next(each for each in predicate["judged_on"] if each["role"] == TARGET)
    guards = {
        each["name"]: (each["dataset"], each["split"]) for each in predicate["judged_on"] if each["role"] == GUARD
    }
    data = JudgingData(lake=lake, target=target["dataset"], split=target["split"], guards=guards)
    policy = replace(restore(Policy, was["policy"]), editors_preferred=False)
    approvals = proof.record.approvals(proof.version, candidate.files, before=promotion.number)
    decision = judge(candidate, rivals, data, policy, approvals=approvals, say=say)
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
    recorded = {each["name"]: each for each in was["checks"] if each["name"] not in _NOT_SCORED}
    found = {each.name: each for each in decision.checks}
    if recorded.keys() != found.keys():
        raise IntegrityError(f"{where}: expected the conditions {', '.join(recorded)}, found {', '.join(found)}")
    for name, check in found.items():
        if check.is_passed != recorded[name]["is_passed"] or _distance(check, recorded[name]) > tolerance:
            raise IntegrityError(f"{where}: expected {recorded[name]['reason']}; judged again: {check.reason}")


def _distance(check: Check, recorded: Mapping[str, Any]) -> float:
    """Return how far apart the means of a condition are, percentage points."""
    measured = recorded["measured"]
    if check.measured is None or measured is None:
        return 0.0 if check.measured is None and measured is None else float("inf")
    return abs(check.measured.mean - float(measured["mean"]))
