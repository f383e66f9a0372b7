"""Whether a champion may be used: by the verified record of promotions, and by the files that were read.

Here statements are compared with the registry, and with the digests of files that are to be used: that takes a few
small files. `multilink verify` (`training.mlflow.judging`) reads the files of model and data, too, and scores
again. And who was champion from when to when, by which decision, and on which data: of the record alone, which only
grows, so that a version that was deleted since is still listed, and an alias that was set by hand is not.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

from securesystemslib.signer import Key

from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.messages import ConfigError, GateError, IntegrityError, UsageError, aligned
from training.project import VARIABLES, VERIFY, setting
from training.promotions.chain import Statement
from training.promotions.keys import trusted_keys
from training.promotions.record import (
    ADOPTED,
    CHANGED,
    TAINTED,
    ModelVersion,
    Record,
    Signatures,
    lake_of,
    trusted_statements,
)

CALIBRATION, FILES = "calibration", "files"  # of a statement: what gives links their probability; all other files
CALIBRATION_FILE = "calibration.json"
ADDRESS_FILE = "registered_model_meta"  # where MLflow before 3.18 notes which version it downloaded
CHANGING = ("model_card.md", CALIBRATION_FILE, ADDRESS_FILE, "report")  # of a version, after registration
PROMOTED, ROLLED_BACK = "promotion", "rollback"
Championship = Mapping[str, Any]
HELD = 2  # the champion, and the one before it, which a rollback makes the champion again
_TRUE, _FALSE = ("true", "1", "yes"), ("", "false", "0", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The statements that make a version the champion.

    Attributes:
        record: all statements.
        version: number.
        statement: that made it champion last.
        promotion: that promoted it after it was judged: the same, or an earlier one where it was rolled back to.
    """

    record: Record
    version: str
    statement: Statement
    promotion: Statement

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
        """Return the digest of the model: of its weights, its words and its settings."""
        return str(self.promotion.model["digest"])

    @property
    def taken_out(self) -> frozenset[str]:
        """Return NAME@VERSION of data that it was trained on, out of which something was taken."""
        return frozenset(each.predicate["dataset"] for each in self.record.about(self.version, TAINTED))


def verifies_all() -> bool:
    """Return whether this machine is set to use verified champions alone.

    Raises:
        ConfigError: the setting is neither true nor false.
    """
    value = setting(VERIFY).lower()
    if value not in (*_TRUE, *_FALSE):
        raise ConfigError(f"{VARIABLES[VERIFY]} = {value!r}: expected true or false")
    return value in _TRUE


def must_verify(record: Record) -> bool:
    """Return whether a model may be used only if it is proved champion: by this machine's setting, or its policy.

    The policy of the last promotion counts.
    """
    last = next((each.policy for each in reversed(record.changes) if each.policy), {})
    return verifies_all() or bool(last.get("verify"))


def keys_of(paths: Iterable[Path] = ()) -> Sequence[Key]:
    """Return the public keys that are trusted: of files and folders, else as this machine is set up.

    Raises:
        UsageError: there is none.
        NotFoundError: a file is not there.
        ConfigError: a file holds no public key.
    """
    found = trusted_keys(list(paths) or None)
    if not found:
        raise UsageError("no key is trusted, so nothing is proved: name public keys with --trust or in multilink.toml")
    return found


def prove(record: Record, version: str) -> Proof:
    """Return the statements that make a version the champion.

    Args:
        record: of the registered model, which trusted keys have signed.
        version: number of one that is or was champion (`Record.number`).

    Raises:
        UsageError: the record is not signed by keys that are trusted here.
        IntegrityError: no promotion of it is stated, or nobody approved it who had to.
    """
    promotion, uri = record.promotion(version), f"models:/{record.model.name}/{version}"
    if record.chain and record.signatures is not Signatures.VERIFIED:
        keys_of()
        raise UsageError(f"{uri}: signatures: {record.signatures}")
    if promotion is None:
        raise IntegrityError(f"{uri}: no statement on its promotion was found; promote it")
    proof = Proof(record=record, version=version, statement=record.about(version, CHANGED)[-1], promotion=promotion)
    _check_approval(proof)
    return proof


def check_files(promotion: Statement, files: Mapping[str, str]) -> None:
    """Compare the files of a version, as they were read, with those that it was promoted with.

    Args:
        promotion: of the version.
        files: path -> SHA-256 of each file, but for those that change later (`CHANGING`).

    Raises:
        IntegrityError: a file was changed, lost or added; the message names it.
    """
    stated: Mapping[str, str] = promotion.predicate.get(FILES, {})
    if others := sorted(name for name in {*stated, *files} if stated.get(name) != files.get(name)):
        raise IntegrityError(
            f"{promotion.subject[0]['name']}: expected the files that {promotion.where} states, found others: "
            f"{', '.join(others)}"
        )


def check_calibration(proof: Proof, digest: str) -> None:
    """Raise an `IntegrityError` unless a calibration, by its digest ("": none), is the one of the promotion."""
    promoted = proof.promotion.predicate.get(CALIBRATION)
    if digest != promoted:
        raise IntegrityError(
            f"{proof.uri}: {CALIBRATION_FILE} has digest {digest or 'none'}; it was promoted with "
            f"{promoted or 'none'}. Promote it again to state this one"
        )


def check_manifests(proof: Proof, lake: Lake) -> tuple[list[str], list[str]]:
    """Compare the data of a champion's statements with the lake's; return NAME@VERSION of what is there, and is not.

    Raises:
        IntegrityError: a manifest is another.
    """
    data = [proof.promotion.predicate["trained_on"], *proof.promotion.predicate["judged_on"]]
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


@dataclass(frozen=True, slots=True)
class Use:
    """A version that may be used, once its files are those that were promoted.

    Attributes:
        version: of the registry.
        promotion: the statement on it; None: there is none, or none is needed.
        proof: that it is a champion; None: it need not be proved.
    """

    version: ModelVersion
    promotion: Statement | None = None
    proof: Proof | None = None

    def check(self, files: Mapping[str, str], calibration: str) -> None:
        """Compare files as they were read, and the digest of a calibration, with the promotion's; raises as those."""
        if self.promotion is not None:
            check_files(self.promotion, files)
        if self.proof is not None:
            check_calibration(self.proof, calibration)


def check_use(record: Record, version: str) -> Use:
    """Refuse a version that must be proved champion and is not, or was trained on data that was taken out too long ago.

    Args:
        record: of the registered model.
        version: its number.

    Raises:
        IntegrityError: it is not proved.
        UsageError: no key is trusted.
        GateError: its policy ended its use.
    """
    _check_taint(record, version)
    proof = None
    if must_verify(record):
        keys_of()
        proof = prove(record, version)
        check_manifests(proof, proof.lake)
    return Use(record.model.versions[version], record.promotion(version), proof)


def _check_taint(record: Record, version: str) -> None:
    found, promotion = record.taint(version), record.promotion(version)
    days = None if promotion is None else promotion.policy.get("forget_within_days")
    if found and days is not None and datetime.now(UTC) > datetime.fromisoformat(found.at) + timedelta(days=days):
        raise GateError(
            f"models:/{record.model.name}/{version} was {found}; its policy allows its use for {days} days after that: "
            "promote another version"
        )


def _check_approval(proof: Proof) -> None:
    """Check that who approved the promotion, if a person did, approved these very files before it."""
    promotion = proof.promotion
    by, approvers = promotion.decision.get("approved_by", ""), promotion.policy.get("approvers", ())
    if not by:
        return
    for each in proof.record.approvals(proof.version, promotion.predicate.get(FILES), before=promotion.number):
        if each.by == by and (not approvers or any(map(each.is_by, approvers))):
            return
    raise IntegrityError(
        f"{promotion.where}: approved by {by}; expected a statement of that approval of these files before it, "
        "found none"
    )


def championships(record: Record) -> list[Championship]:
    """Return who was champion, the first one first; empty where nobody was promoted.

    Each has, ready for JSON: `model` and `version`; `since` and `until` (empty: it still is), ISO 8601 in UTC;
    `replaced`, the champion before; `by`, which is `promotion`, `rollback` or `adopted` (who signs answers for what
    stood before); `trained_on` and `judged_on`, NAME@VERSION; `split` and `documents` of the latter; `approved_by`;
    `reasons`, a sentence each; `signed_by`, ids of the trusted keys whose signatures of the statement verify; and
    `tainted`, why it is. What no statement says is empty.
    """
    changes = record.changes
    return [_championship(record, change, after) for change, after in zip_longest(changes, changes[1:])]


def _championship(record: Record, change: Statement, after: Statement | None) -> Championship:
    version, decision, replaced = (
        next(iter(change.champions), ""),
        change.decision,
        change.decision.get("champion_before"),
    )
    return {
        "model": record.model.name,
        "version": version,
        "since": _time(change),
        "until": "" if after is None else _time(after),
        "replaced": "" if replaced in (None, version) else replaced,
        "by": ADOPTED if change.event == ADOPTED else ROLLED_BACK if decision.get("is_rollback") else PROMOTED,
        "trained_on": change.predicate.get("trained_on", {}).get("dataset", ""),
        "judged_on": decision.get("dataset", ""),
        "split": decision.get("split", ""),
        "documents": decision.get("documents", 0),
        "approved_by": decision.get("approved_by", ""),
        "reasons": decision.get("reasons", []),
        "signed_by": change.signers,
        "tainted": str(record.taint(version) or ""),
    }


def _time(change: Statement) -> str:
    return datetime.fromisoformat(change.predicate["at"]).astimezone(UTC).isoformat(timespec="seconds")


def lines(found: Sequence[Championship]) -> Iterator[str]:
    """Yield a table of them, and under each what it was decided by."""
    heads = ["since", "version", "replaced", "by", "judged on", "approved by", "signed by"]
    rows = [[str(each[head.replace(" ", "_")] or "-") for head in heads[:-1]] for each in found]
    signers = [each["signed_by"][0][:12] if each["signed_by"] else "-" for each in found]
    head, *table = aligned([heads, *([*row, signer] for row, signer in zip(rows, signers, strict=True))])
    yield head
    for line, each in zip(table, found, strict=True):
        yield line
        yield from (f"  {reason}" for reason in each["reasons"])
        if each["tainted"]:
            yield f"  tainted: {each['tainted']}"


def needed_by_champions(lake: Lake) -> Mapping[str, list[str]]:
    """Return NAME@VERSION -> addresses of the champions, and of those before them, that need it.

    Raises:
        IntegrityError: a chain of promotions is damaged, or not signed by trusted keys.
    """
    needed: dict[str, list[str]] = {}
    for name in lake.root.child("promotions").names():
        statements = trusted_statements(lake.promotions(name))
        changes = [each for each in statements if "champions" in each.predicate]
        for version in changes[-1].champions[:HELD] if changes else ():
            for reference in _read_by(version, statements):
                needed.setdefault(reference, []).append(f"models:/{name}/{version}")
    return needed


def _read_by(version: str, statements: list[Statement]) -> list[str]:
    """Return what a version of the model was trained and judged on, by the last statement that says so."""
    own = [each.predicate for each in statements if each.version == version]
    said: Mapping[str, Any] = next((each for each in reversed(own) if "trained_on" in each), {})
    found = [said.get("trained_on", {}), *said.get("judged_on", ())]
    return list(dict.fromkeys(each["dataset"] for each in found if "dataset" in each))
