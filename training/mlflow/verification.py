"""Verifying a champion on any machine that can read registry and lake: statements, model, data, and the scores anew.

What is compared with what, in order; the first difference is an error that names its place:

- each statement with the one before it, the champion's with trusted keys, an approval with the decision;
- the registry's alias and tags with the statements;
- every file of the model, and of the data sets that it was trained and judged on, with their digests;
- in depth: the scores with those of the same models on the same documents, now. On the same kind of processor, with the
  same libraries, they are the same to the last bit. On another, each mean that decided must be within
  `TOLERANCE` points, and each condition must come out as it did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlflow
from securesystemslib.signer import Key

from schemas.configs import restore
from schemas.console import Say
from schemas.errors import IntegrityError
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify
from training.mlflow.evidence import GUARD, TARGET, libraries, processor
from training.mlflow.gate import Check, Decision
from training.mlflow.judging import Ground, Rivals, judge
from training.mlflow.loading import download
from training.mlflow.policy import Editors, Policy
from training.mlflow.provenance import Proof, chain_lake, check_manifests, prove
from training.mlflow.registry import MODEL_DIGEST_TAG, find_version
from training.model_files import check_files
from training.promotions.chain import Statement

TOLERANCE = 0.1  # percentage points
_NOT_SCORED = ("latest", "editors")  # checks that say what was so on that day


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found to be as it was promoted.

    Attributes:
        proof: statements on the champion.
        findings: what was compared, a sentence each.
    """

    proof: Proof
    findings: tuple[str, ...]


def verify_champion(
    client: mlflow.MlflowClient,
    name: str,
    version: str,
    *,
    keys: Sequence[Key],
    lake: Lake | None = None,
    is_deep: bool = False,
    say: Say,
) -> Verified:
    """Compare a champion with what was promoted, and return what was found.

    Args:
        client: of the registry.
        name: registered model.
        version: `champion`, or the number of one that is or was.
        keys: that are trusted.
        lake: holds chain and data; None: the one that the registry names.
        is_deep: whether to score it again.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version, or a data set version is not in the lake any more.
        IntegrityError: something is not as it was promoted; the message names the place.
    """
    proof = prove(client, name, version, keys=keys, lake=lake)
    home = lake or chain_lake(proof)
    return Verified(proof=proof, findings=tuple(_findings(client, proof, home, is_deep=is_deep, say=say)))


def _findings(client: mlflow.MlflowClient, proof: Proof, lake: Lake, *, is_deep: bool, say: Say) -> Iterator[str]:
    statement = proof.statement
    yield f"{proof.count} statements follow one another; {statement.where} is signed by {statement.signed_by[0]}"
    say(f"reading the files of {proof.version.uri}")
    digest = proof.version.tags[MODEL_DIGEST_TAG]
    with download(proof.version.uri) as folder:
        check_files(folder, digest)
    yield f"the model's files have the digest {digest}"
    for reference in check_manifests(proof, lake):
        say(f"reading the files of {reference}")
        manifest, home = read_manifest(lake, reference)
        for difference in verify(manifest, home):
            raise IntegrityError(f"{reference}: {difference}")
        yield f"all {len(manifest.files)} files of {reference} are those of its manifest"
    for reference in sorted(proof.taken_out):
        yield f"something was taken out of {reference}, on which it was trained: its files are not compared"
    if proof.promotion is None:
        yield "it was promoted before there were statements: on which data, none says"
    elif is_deep and proof.taken_out:
        yield "its scores cannot be compared"
    elif is_deep:
        yield _scored_again(client, proof.promotion, lake, say)


def _scored_again(client: mlflow.MlflowClient, statement: Statement, lake: Lake, say: Say) -> str:
    """Judge again as a statement says, and return in which sense the outcome is the same."""
    says, where = statement.predicate, statement.where
    was, name = says["decision"], says["model"]["name"]
    rivals = Rivals(
        champion=None if was["champion_before"] is None else find_version(client, name, was["champion_before"]),
        best=None if was["best_before"] == was["champion_before"] else find_version(client, name, was["best_before"]),
        attempt=was["attempt"],
    )
    target = next(each for each in says["judged_on"] if each["role"] == TARGET)
    guards = {each["name"]: (each["dataset"], each["split"]) for each in says["judged_on"] if each["role"] == GUARD}
    ground = Ground(lake=lake, target=target["dataset"], split=target["split"], guards=guards)
    policy = replace(restore(Policy, was["policy"]), editors=Editors())
    candidate = find_version(client, name, was["version"])
    decision, _ = judge(candidate, rivals, ground, policy, approved_by=was["approved_by"], say=say)
    here = {"processor": processor(), "libraries": libraries()}
    same = {key: says[key] == here[key] for key in ("processor", "libraries")}
    if all(same.values()):
        if decision.scores != was["scores"]:
            raise IntegrityError(
                f"{where}: its scores have digest {was['scores']}; on the same kind of processor they are now "
                f"{decision.scores}"
            )
        _compare(decision, was, where, tolerance=0.0)
        return f"its {decision.documents} documents are scored as they were, to the last bit"
    _compare(decision, was, where, tolerance=TOLERANCE)
    other = " and ".join(key for key, is_same in same.items() if not is_same)
    bits = "; the scores are the same to the last bit" if decision.scores == was["scores"] else ""
    return f"with another {other}, each condition comes out as it did, means within {TOLERANCE:g} points{bits}"


def _compare(decision: Decision, was: Mapping[str, Any], where: str, *, tolerance: float) -> None:
    recorded = {each["name"]: each for each in was["checks"] if each["name"] not in _NOT_SCORED}
    found = {each.name: each for each in decision.checks}
    if recorded.keys() != found.keys():
        raise IntegrityError(f"{where}: expected the conditions {', '.join(recorded)}, found {', '.join(found)}")
    for name, check in found.items():
        if check.is_passed != recorded[name]["is_passed"] or _distance(check, recorded[name]) > tolerance:
            raise IntegrityError(f"{where}: it says: {recorded[name]['reason']}; judged again: {check.reason}")


def _distance(check: Check, recorded: Mapping[str, Any]) -> float:
    """Return how far apart the means of a condition are, percentage points."""
    measured = recorded["measured"]
    if check.measured is None or measured is None:
        return 0.0 if check.measured is None and measured is None else float("inf")
    return abs(check.measured.mean - float(measured["mean"]))
