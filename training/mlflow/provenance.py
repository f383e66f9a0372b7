"""Whether a champion may be used: by the chain of statements on it, signed with keys that are trusted.

Here statements are read and the registry is compared with them: that takes a few small files. `verification.py` reads
the files of model and data, too, and scores again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from securesystemslib.signer import Key

from schemas.errors import ConfigError, IntegrityError, NotFoundError, UsageError
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from training.mlflow.champions import CHANGED, is_about, statements
from training.mlflow.gate import APPROVAL
from training.mlflow.registry import CHAMPION, DECISION_TAG, MODEL_DIGEST_TAG, ModelVersion, find_model, find_version
from training.mlflow.taints import TAINTED
from training.promotions.chain import Statement
from training.promotions.keys import default_trust, trusted_keys

VERIFY_VARIABLE = "MULTILINK_VERIFY"
APPROVED = "approval"  # event
_TRUE, _FALSE = ("true", "1", "yes"), ("", "false", "0", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The statements that make a version the champion.

    Attributes:
        version: of the registry.
        statement: that made it champion last.
        promotion: that promoted it after it was judged: the same, or an earlier one where it was rolled back to.
        count: how many statements the chain has.
        taken_out: NAME@VERSION of data that it was trained on, out of which something was taken.
    """

    version: ModelVersion
    statement: Statement
    promotion: Statement | None
    count: int
    taken_out: frozenset[str]

    @property
    def decision(self) -> dict[str, Any]:
        """Return the decision that promoted it; empty where no statement has one."""
        return {} if self.promotion is None else dict(self.promotion.predicate["decision"])


def must_verify(version: ModelVersion) -> bool:
    """Return whether a version may be used only if it is proved champion: by this machine's setting, or its policy.

    Raises:
        ConfigError: the setting is neither true nor false.
    """
    setting = os.environ.get(VERIFY_VARIABLE, "").lower()
    if setting not in (*_TRUE, *_FALSE):
        raise ConfigError(f"{VERIFY_VARIABLE} = {setting!r}: expected true or false")
    policy = json.loads(version.tags.get(DECISION_TAG, "{}")).get("policy", {})
    return setting in _TRUE or bool(policy.get("verify"))


def keys_of(paths: Iterable[Path] = ()) -> Sequence[Key]:
    """Return the public keys that are trusted: of files and folders, else as this machine is set up.

    Raises:
        UsageError: there is none.
        NotFoundError: a file is not there.
        ConfigError: a file holds no public key.
    """
    found = trusted_keys(list(paths) or default_trust())
    if not found:
        raise UsageError("no key is trusted: name public keys with --trust, or as trust in multilink.toml")
    return found


def prove(
    client: mlflow.MlflowClient,
    name: str,
    version: str = CHAMPION,
    *,
    keys: Sequence[Key],
    lake: Lake | None = None,
) -> Proof:
    """Return the statements that make a version the champion.

    Args:
        client: of the registry.
        name: registered model.
        version: `champion`, or the number of one that is or was.
        keys: that are trusted.
        lake: holds the chain; None: the lake that the registry names.

    Raises:
        NotFoundError: there is no such model or version.
        IntegrityError: there is no such statement, it has no trusted signature, the chain is damaged, or the registry
            says something else.
    """
    found, model = find_version(client, name, version), find_model(client, name)
    said = [each for each in statements(client, name, lake) if is_about(each, model)]
    changes = [each for each in said if each.predicate["event"] == CHANGED]
    if version == CHAMPION and changes and changes[-1].predicate["champions"][:1] != [found.version]:
        champion = changes[-1].predicate["champions"][0]
        raise IntegrityError(
            f"alias {CHAMPION} of {found.name} is version {found.version}; {changes[-1].where} says version {champion}"
        )
    own = [each for each in changes if each.predicate["champions"][:1] == [found.version]]
    if not own:
        raise IntegrityError(f"{found.uri}: no statement says that it was promoted; promote it, or roll back to it")
    proof = Proof(
        version=found,
        statement=own[-1],
        promotion=next((each for each in reversed(own) if "checks" in (each.predicate["decision"] or {})), None),
        count=len(said),
        taken_out=frozenset(
            each.predicate["dataset"]
            for each in said
            if (each.predicate["event"], each.predicate["model"].get("version")) == (TAINTED, found.version)
        ),
    )
    for statement in filter(None, (proof.statement, proof.promotion)):
        statement.check_signed(keys)
    _compare_with_registry(proof)
    _check_approval(proof, said, keys)
    return proof


def check_manifests(proof: Proof, lake: Lake) -> list[str]:
    """Check that the data of a champion's statements is that of the lake; return NAME@VERSION of each.

    Data out of which something was taken since has been replaced, and is passed over.

    Raises:
        NotFoundError: a version is not there any more.
        IntegrityError: a manifest is another.
    """
    says = (proof.promotion or proof.statement).predicate
    digests = {each["dataset"]: each["sha256"] for each in (says["trained_on"], *says["judged_on"]) if each["dataset"]}
    left = {name: digest for name, digest in digests.items() if name not in proof.taken_out}
    for reference, expected in left.items():
        folder = lake.dataset(*lake.find(reference))
        found = hashlib.sha256(folder.read(MANIFEST)).hexdigest()
        if expected not in ("", found):
            where = f"{folder.uri}/{MANIFEST}"
            raise IntegrityError(
                f"{where}: expected the manifest that was promoted on, digest {expected}, found {found}"
            )
        read_manifest(lake, reference)
    return list(left)


def check_use(client: mlflow.MlflowClient, version: ModelVersion) -> None:
    """Refuse a version that must be proved champion and is not; raises as `prove` and `keys_of` do."""
    if must_verify(version):
        try:
            proof = prove(client, version.name, version.version, keys=keys_of())
            check_manifests(proof, chain_lake(proof))
        except NotFoundError as problem:
            raise IntegrityError(f"{version.uri}: {problem}") from problem


def chain_lake(proof: Proof) -> Lake:
    """Return the lake that a champion's statements lie in."""
    return Lake.at(proof.statement.where.rsplit("/", 3)[0])


def _compare_with_registry(proof: Proof) -> None:
    where, tags = proof.statement.where, proof.version.tags
    said, found = proof.statement.subject[0]["digest"]["sha256"], tags.get(MODEL_DIGEST_TAG, "")
    if said != found:
        raise IntegrityError(f"{where}: the model's files have digest {said}; by the registry's tag it is {found}")
    kept = json.loads(tags.get(DECISION_TAG, "null"))
    if kept is not None and proof.promotion is not None and kept != proof.decision:
        different = sorted(key for key in {*kept, *proof.decision} if kept.get(key) != proof.decision.get(key))
        raise IntegrityError(
            f"{proof.version.uri}: tag {DECISION_TAG} is not the decision of {proof.promotion.where}: "
            f"{', '.join(different)}"
        )


def _check_approval(proof: Proof, said: Iterable[Statement], keys: Sequence[Key]) -> None:
    """Check that who approved the promotion, if a person did, has said so before it."""
    checks, by = proof.decision.get("checks", ()), proof.decision.get("approved_by", "")
    if proof.promotion is None or not any(each["name"] == APPROVAL for each in checks):
        return
    for each in said:
        says = each.predicate
        is_it = (says["event"], says["model"].get("version"), says.get("approved_by")) == (
            APPROVED,
            proof.version.version,
            by,
        )
        if is_it and each.number < proof.promotion.number:
            each.check_signed(keys)
            return
    raise IntegrityError(f"{proof.promotion.where}: approved by {by}, of whom there is no statement before it")
