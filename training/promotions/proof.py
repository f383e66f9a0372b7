"""Whether a champion may be used: by the record of promotions, signed with keys that are trusted.

Here statements are read and the registry is compared with them: that takes a few small files. `multilink verify`
(`training.mlflow.verification`) reads the files of model and data, too, and scores again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from securesystemslib.signer import Key

from schemas.errors import ConfigError, GateError, IntegrityError, UsageError
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from training.promotions.chain import Statement
from training.promotions.keys import default_trust, trusted_keys
from training.promotions.record import (
    CHAMPION,
    CHANGED,
    DECISION_TAG,
    MODEL_DIGEST_TAG,
    PREVIOUS_CHAMPION,
    TAINTED,
    Record,
    Registered,
    lake_of,
    read_record,
)

VERIFY_VARIABLE = "MULTILINK_VERIFY"
CALIBRATION = "calibration"  # of a statement: the digest of what gives links their probability
_TRUE, _FALSE = ("true", "1", "yes"), ("", "false", "0", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The statements that make a version the champion.

    Attributes:
        record: all statements.
        version: number.
        statement: that made it champion last.
        promotion: that promoted it after it was judged: the same, or an earlier one where it was rolled back to.
        taken_out: NAME@VERSION of data that it was trained on, out of which something was taken, by signed statements.
    """

    record: Record
    version: str
    statement: Statement
    promotion: Statement | None
    taken_out: frozenset[str]

    @property
    def uri(self) -> str:
        return f"models:/{self.record.model.name}/{self.version}"

    @property
    def lake(self) -> Lake:
        """Return the lake that the statements lie in."""
        home = self.record.home
        assert home is not None  # there are statements
        return lake_of(home)

    @property
    def digest(self) -> str:
        """Return the digest of the model's files."""
        return str(self.statement.subject[0]["digest"]["sha256"])

    @property
    def evidence(self) -> Mapping[str, Any]:
        """Return what the promotion rests on."""
        return (self.promotion or self.statement).predicate

    @property
    def decision(self) -> Mapping[str, Any]:
        """Return the decision that promoted it; empty where no statement has one."""
        return {} if self.promotion is None else dict(self.promotion.predicate["decision"])


def verifies_all() -> bool:
    """Return whether this machine is set to use verified champions alone.

    Raises:
        ConfigError: the setting is neither true nor false.
    """
    setting = os.environ.get(VERIFY_VARIABLE, "").lower()
    if setting not in (*_TRUE, *_FALSE):
        raise ConfigError(f"{VERIFY_VARIABLE} = {setting!r}: expected true or false")
    return setting in _TRUE


def must_verify(record: Record, version: str, alias: str = "") -> bool:
    """Return whether a version may be used only if it is proved champion: by this machine's setting, or a policy.

    A policy counts for every champion that follows, until one with a trusted signature says otherwise.
    """
    if verifies_all():
        return True
    is_champion = alias == CHAMPION or any(change.champions[:1] == (version,) for change in record.changes)
    policies = [(change, change.decision.get("policy", {})) for change in record.changes if is_champion]
    if not any(policy.get("verify") for _, policy in policies):
        return False
    keys = trusted_keys(default_trust())
    for change, policy in reversed(policies):
        if policy and (policy.get("verify") or (change.statement is not None and change.statement.verified_by(keys))):
            return bool(policy.get("verify"))
    return False


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


def prove(record: Record, address: str = CHAMPION, *, keys: Sequence[Key]) -> Proof:
    """Return the statements that make a version the champion.

    Args:
        record: of the registered model.
        address: number of a version that is or was champion, or an alias; the last change of champion must agree with
            the aliases `champion` and `previous_champion`.
        keys: that are trusted.

    Raises:
        NotFoundError: there is no such version.
        IntegrityError: there is no such statement, it has no trusted signature, or the registry says something else.
    """
    version, name = record.model.number(address), record.model.name
    changes = [each for each in record.statements if each.event == CHANGED]
    stated = {CHAMPION: record.current.champion, PREVIOUS_CHAMPION: record.current.previous}
    if changes and stated.get(address, version) != version:
        raise IntegrityError(
            f"alias {address} of {name} is version {version}; by {changes[-1].where} it is {stated[address]}"
        )
    own = [each for each in changes if each.predicate["champions"][:1] == [version]]
    if not own:
        raise IntegrityError(
            f"models:/{name}/{version}: no statement says that it was promoted; promote it, or roll back to it"
        )
    proof = Proof(
        record=record,
        version=version,
        statement=own[-1],
        promotion=next((each for each in reversed(own) if "checks" in (each.predicate["decision"] or {})), None),
        taken_out=frozenset(
            each.predicate["dataset"] for each in record.about(version, TAINTED) if each.verified_by(keys)
        ),
    )
    for statement in filter(None, (proof.statement, proof.promotion)):
        statement.check_signed(keys)
    _compare_with_registry(proof)
    _check_approval(proof, keys)
    return proof


def check_manifests(proof: Proof, lake: Lake) -> tuple[list[str], list[str]]:
    """Compare the data of a champion's statements with the lake's; return NAME@VERSION of what is there, and is not.

    Raises:
        IntegrityError: a manifest is another.
    """
    data = [proof.evidence["trained_on"], *proof.evidence["judged_on"]]
    digests = {each["dataset"]: each["sha256"] for each in data if each["dataset"]}
    there = [name for name in digests if lake.dataset(*name.split("@")).exists(MANIFEST)]
    for reference in there:
        folder = lake.dataset(*reference.split("@"))
        expected, found = digests[reference], hashlib.sha256(folder.read(MANIFEST)).hexdigest()
        if expected not in ("", found):
            raise IntegrityError(
                f"{folder.uri}/{MANIFEST}: expected the manifest that was promoted on, digest {expected}, found {found}"
            )
        read_manifest(lake, reference)
    return there, [name for name in digests if name not in there]


def check_use(model: Registered, address: str, *, calibration: str | None = None) -> Proof | None:
    """Refuse a version that must be proved champion and is not, or was trained on data that was taken out too long ago.

    Returns the proof, None where none is needed.

    Args:
        model: by its registry.
        address: number or alias that the version is used by.
        calibration: digest of the calibration that it is used with ("": none); None: it is used with none.

    Raises:
        IntegrityError: it is not proved.
        UsageError: no key is trusted.
        GateError: its policy ended its use.
    """
    record, version = read_record(model), model.number(address)
    _check_taint(record, version)
    if not must_verify(record, version, address):
        return None
    proof = prove(record, address, keys=keys_of())
    check_manifests(proof, proof.lake)
    check_calibration(proof, calibration)
    return proof


def check_calibration(proof: Proof, digest: str | None) -> None:
    """Raise an `IntegrityError` unless a champion's calibration is the one that it was promoted with."""
    promoted = proof.evidence.get(CALIBRATION)
    if digest is not None and promoted is not None and digest != promoted:
        raise IntegrityError(
            f"{proof.uri}: calibration.json has digest {digest or 'none'}; it was promoted with {promoted or 'none'}. "
            "Promote it again to state this one"
        )


def _check_taint(record: Record, version: str) -> None:
    found, days = record.taint(version), record.policy(version).get("forget", {}).get("within_days")
    if found is None or days is None:
        return
    if datetime.now(UTC) > datetime.fromisoformat(found.at) + timedelta(days=days):
        raise GateError(
            f"models:/{record.model.name}/{version} was {found}; its policy allows its use for {days} days after that: "
            "promote another version"
        )


def _compare_with_registry(proof: Proof) -> None:
    where, tags = proof.statement.where, proof.record.model.versions[proof.version]
    found = tags.get(MODEL_DIGEST_TAG, "")
    if proof.digest != found:
        raise IntegrityError(
            f"{where}: the model's files have digest {proof.digest}; by the registry's tag it is {found}"
        )
    kept = json.loads(tags.get(DECISION_TAG, "null"))
    judged = [each for each in proof.record.judgements() if each.get("version") == proof.version]
    if kept is not None and judged and kept not in judged:
        different = sorted(key for key in {*kept, *judged[-1]} if kept.get(key) != judged[-1].get(key))
        raise IntegrityError(
            f"{proof.uri}: tag {DECISION_TAG} is no decision that is stated in {where.rpartition('/')[0]}: "
            f"{', '.join(different)}"
        )


def _check_approval(proof: Proof, keys: Sequence[Key]) -> None:
    """Check that who approved the promotion, if a person did, approved these very files before it."""
    by, approvers = proof.decision.get("approved_by", ""), proof.decision.get("policy", {}).get("approvers", ())
    if proof.promotion is None or not by:
        return
    before = proof.promotion.number
    for each in proof.record.approvals(proof.version, proof.digest, keys, before=before):
        if each.by == by and each.keys and (not approvers or any(map(each.is_by, approvers))):
            return
    raise IntegrityError(
        f"{proof.promotion.where}: approved by {by}; expected a statement of that approval of these files before it, "
        "signed by a trusted key, found none"
    )
