"""A chain of statements about a registered model, `<lake>/promotions/<model>/<number>.json`, which only grows.

    000001.json  <-- previous: sha256 --  000002.json  <-- previous: sha256 --  000003.json

Each file is an envelope (DSSE: https://github.com/secure-systems-lab/dsse) around a statement (in-toto Statement v1:
https://github.com/in-toto/attestation). The statement's predicate names its number and the SHA-256 of the file before.
A file is written where there is none of its number, by one conditional request: of two processes that follow the same
statement one succeeds, and the other looks again. So whoever has the last file has all of them, in order, and a change
anywhere shows. That the last ones are missing does not show in the files: the reader must know how many there are
(`record.py`). A machine that has read more notices, too: it keeps number and digest of the last statement that it
has verified, in `multilink/promotions` of the user's folder of state (`check_seen`). One that reads a record for the
first time does not.
"""

import binascii
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key, Signer

from schemas.lake import Folder
from schemas.messages import IntegrityError
from schemas.versions import canonical_json, fingerprint

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:multilink:promotion:v1"
DIGITS = 6
READ_AT_ONCE = 16  # a statement is a small file, and on an object store a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of a chain.

    Attributes:
        where: the file it was read from.
        digest: SHA-256 (hex) of that file.
        subject: what it is about: names and digests.
        predicate: its content.
        envelope: with its signatures, which nobody has checked.
        signers: ids of the trusted keys whose signatures on it, or on a later statement that adopted it, verify.
        is_adopted: whether a later statement took it over, which answers for it.
    """

    where: str
    digest: str
    subject: Sequence[Mapping[str, Any]]
    predicate: Mapping[str, Any]
    envelope: Envelope
    signers: tuple[str, ...] = ()
    is_adopted: bool = False

    @property
    def number(self) -> int:
        return int(self.predicate["number"])

    @property
    def event(self) -> str:
        """What kind of statement it is."""
        return str(self.predicate["event"])

    @property
    def model(self) -> Mapping[str, Any]:
        """The registered model that it is about, and when that was made; the version and the digest of its files."""
        about: Mapping[str, Any] = self.predicate["model"]
        return about

    @property
    def version(self) -> str | None:
        return self.model.get("version")

    @property
    def decision(self) -> Mapping[str, Any]:
        """Return the decision that it states; empty: it states none."""
        return self.predicate.get("decision") or {}

    @property
    def policy(self) -> Mapping[str, Any]:
        """Return the policy that it was decided by; empty: by none."""
        return self.decision.get("policy") or {}

    @property
    def champions(self) -> tuple[str, ...]:
        """Return versions, the champion's first, then those that a rollback goes back to; of a change of champion."""
        return tuple(self.predicate.get("champions", ()))


@dataclass(frozen=True, slots=True)
class Chain:
    """The statements about one registered model; `folder` need not be there yet."""

    folder: Folder

    def statements(self) -> list[Statement]:
        """Return all statements, the first one first.

        Raises:
            IntegrityError: a file is missing, damaged, out of order, or does not follow the one before it.
        """
        names = [name for name in self.folder.names() if name.endswith(".json")]
        with ThreadPoolExecutor(READ_AT_ONCE) as readers:
            files = list(readers.map(self.folder.read, names))
        found: list[Statement] = []
        for number, (name, data) in enumerate(zip(names, files, strict=True), start=1):
            if name != _name(number):
                raise IntegrityError(f"{self.folder.uri}: expected {_name(number)} next, found {name}")
            statement = _parsed(data, self.folder.child(name).uri)
            before = found[-1].digest if found else ""
            for key, wanted in (("number", number), ("previous", before)):
                if statement.predicate.get(key) != wanted:
                    value = statement.predicate.get(key)
                    raise IntegrityError(f"{statement.where}: expected {key} {wanted!r}, found {value!r}")
            found.append(statement)
        return found

    def append(
        self,
        last: Statement | None,
        subject: Sequence[Mapping[str, Any]],
        predicate: Mapping[str, Any],
        signer: Signer | None,
    ) -> bool:
        """Add a statement after `last`; return False where another process has followed that one.

        Args:
            last: statement that it follows; None: it is the first.
            subject: what it is about.
            predicate: its content, but for its number, the digest of `last`, and when it is written.
            signer: signs it; None: it is not signed.
        """
        number = 1 if last is None else last.number + 1
        own = {"number": number, "previous": last.digest if last else "", "at": datetime.now(UTC).isoformat()}
        data = write_statement(PREDICATE_TYPE, subject, {**predicate, **own}, signer)
        # Where the answer to a first request was lost, the second finds what the first has written. Where S3 refused
        # one since another was under way, that may have failed, too, and nothing is there.
        with suppress(FileNotFoundError):
            return self.folder.add(_name(number), data) or self.folder.read(_name(number)) == data
        return False


def _name(number: int) -> str:
    return f"{number:0{DIGITS}}.json"


def write_statement(
    kind: str, subject: Sequence[Mapping[str, Any]], predicate: Mapping[str, Any], signer: Signer | None
) -> bytes:
    """Return a statement in its envelope, in canonical JSON; the same key gives the same bytes.

    Args:
        kind: type of the predicate.
        subject: what it is about.
        predicate: its content.
        signer: signs it; None: it is not signed.
    """
    statement = {"_type": STATEMENT_TYPE, "subject": list(subject), "predicateType": kind, "predicate": predicate}
    envelope = Envelope(canonical_json(statement).encode(), PAYLOAD_TYPE, {})
    if signer is not None:
        envelope.sign(signer)
    return _written(envelope)


def read_statement(data: bytes, kind: str, where: str) -> tuple[Envelope, Sequence[Mapping[str, Any]], dict[str, Any]]:
    """Return envelope, subject and predicate of a statement; nobody has checked its signatures.

    Args:
        data: bytes as `write_statement` writes them.
        kind: type of the predicate.
        where: the place that an error names.

    Raises:
        IntegrityError: it is no such statement, or not in canonical JSON.
    """
    try:
        envelope = Envelope.from_dict(json.loads(data))
        statement = json.loads(envelope.payload)
        types = envelope.payload_type, statement["_type"], statement["predicateType"]
        if types != (PAYLOAD_TYPE, STATEMENT_TYPE, kind):
            raise ValueError("it is of another type")
        if canonical_json(statement).encode() != envelope.payload or data != _written(envelope):
            raise ValueError("its JSON is not in the canonical form")
        return envelope, statement["subject"], dict(statement["predicate"])
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as problem:
        reason = f"it has no {problem}" if isinstance(problem, KeyError) else problem
        raise IntegrityError(f"{where}: expected a statement of promotions: {reason}") from problem


def signers_of(envelope: Envelope, keys: Sequence[Key]) -> tuple[str, ...]:
    """Return the ids of those of these keys that have signed an envelope."""
    signers = []
    for key in keys:
        with suppress(VerificationError, ValueError):
            envelope.verify([key], 1)
            signers.append(key.keyid)
    return tuple(signers)


def _parsed(data: bytes, where: str) -> Statement:
    envelope, subject, predicate = read_statement(data, PREDICATE_TYPE, where)
    model = predicate.get("model")
    has_model = isinstance(model, dict) and isinstance(model.get("created"), str)
    if not has_model or not isinstance(predicate.get("event"), str):
        raise IntegrityError(f"{where}: expected a statement of promotions: an event, a model and when that was made")
    digest = sha256(data).hexdigest()
    return Statement(where=where, digest=digest, subject=subject, predicate=predicate, envelope=envelope)


def _written(envelope: Envelope) -> bytes:
    return (canonical_json(envelope.to_dict()) + "\n").encode()


def check_seen(registry: str, name: str, created: str, statements: Sequence[Statement]) -> None:
    """Refuse a record that lacks what this machine has seen of it; else remember its end.

    Args:
        registry: address of the registry.
        name: registered model.
        created: when that was made.
        statements: of its record, verified, the first one first.

    Raises:
        IntegrityError: the record was longer, or another, when this machine read it before.
    """
    folder, file = _folder(), f"{fingerprint([registry, name, created])}.json"
    number, digest = 0, ""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        number, digest = json.loads((folder / file).read_text(encoding="utf-8"))
    if number and [each.digest for each in statements[number - 1 : number]] != [digest]:
        raise IntegrityError(
            f"the record of promotions of '{name}' had statement {number}, {digest[:12]}, when this machine read it "
            f"last, and has {len(statements)} now, that one not among them: restore it from a backup; if it was given "
            f"up on purpose, remove {folder / file}"
        )
    if len(statements) > number:
        with suppress(OSError):  # a machine without a folder of its user remembers nothing
            Folder(str(folder)).write(file, json.dumps([len(statements), statements[-1].digest]).encode())


def _folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "multilink" / "promotions"
