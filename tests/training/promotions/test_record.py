"""Statements follow one another in a chain, and what follows from them: whose count, approvals, the best champion."""

import json
from base64 import b64decode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, Key
from statements import decided, registered, state, version

from schemas.lake import Folder, Lake
from schemas.messages import ConfigError, IntegrityError, NotFoundError, UsageError
from training.promotions.chain import Chain, signers_of, write_statement
from training.promotions.keys import default_trust, key_path, make_key, own_signer, public_path, trusted_keys
from training.promotions.record import (
    ADOPTED,
    APPROVED,
    CHANGED,
    EVALUATED,
    JUDGED,
    TAINTED,
    Approval,
    ModelVersion,
    Record,
    Signatures,
    lake_of,
    read_record,
)


@pytest.mark.parametrize(
    "lake",
    [
        "/data/lake",
        "/data/lake?",
        "s3://bucket/lake",
        "s3://bucket/a/lake?region=eu&endpoint=http://127.0.0.1:9000",
    ],
)
def test_statements_lie_in_their_lake_whatever_its_address(lake: str) -> None:
    assert lake_of(Lake.at(lake).promotions("linker")) == Lake.at(lake)


def test_no_alias_makes_a_champion(tmp_path: Path) -> None:
    assert read_record(registered(tmp_path)).champion is None
    assert read_record(registered(tmp_path, tags={})).home is None
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    record = read_record(registered(tmp_path))
    assert record.champions == ("1",) and record.token == record.statements[0].digest
    with pytest.raises(IntegrityError, match=r"alias champion of linker is version 4; by .*000001\.json it is 1"):
        record.number("champion")
    with pytest.raises(IntegrityError, match=r"incomplete \(1 of 2 statements\): restore .* from a backup"):
        read_record(registered(tmp_path, count=2))
    with pytest.raises(NotFoundError, match="no version 'challenger' of model 'linker' in "):
        record.number("challenger")


def test_statements_about_another_model_are_refused_until_somebody_answers_for_them(tmp_path: Path) -> None:
    changed = {"name": "other"}
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    assert not read_record(registered(tmp_path, created="8")).statements  # made anew, or in another registry
    with pytest.raises(IntegrityError, match=r"000001\.json: is about 'linker'"):
        read_record(registered(tmp_path, **changed))
    state(tmp_path, ADOPTED, "1", model=changed, champions=["1"], best="1")
    record = read_record(registered(tmp_path, **changed))
    assert record.champion == "1" and len(record.statements) == 2


@pytest.mark.parametrize("other", [None, version("2", digest="other"), version("2", run="r9")])
def test_a_number_is_no_identity(tmp_path: Path, other: ModelVersion | None) -> None:
    """The version was deleted, or its number was given to another: nothing that is stated is about that."""
    state(tmp_path, CHANGED, "1", champions=["1"], decision=decided("1", None, None, "1"))
    state(tmp_path, JUDGED, "2", decision=decided("2", None, None))
    state(tmp_path, APPROVED, "2", approved_by="Ann")
    state(tmp_path, TAINTED, "2", dataset="diy@v1", documents=1, images=1)
    state(tmp_path, CHANGED, "2", champions=["2", "1"], decision=decided("2", None, None, "2"))
    model = registered(tmp_path, aliases={"champion": "2"})
    there, gone = read_record(model), registered(tmp_path, aliases={"champion": "2"}, versions={"1": version("1")})
    assert there.number("champion") == "2" and there.promotion("2") and there.approvals("2") and there.taint("2")
    if other is not None:
        gone.versions["2"] = other  # type: ignore[index]
    record = read_record(gone)
    assert record.champion == record.best == "2" and not record.is_there("2")
    with pytest.raises(IntegrityError, match=r"000005\.json: names models:/linker/2, and .* multilink rollback"):
        record.number("champion")
    if other is not None:
        assert not record.approvals("2") and record.promotion("2") is record.taint("2") is None
        assert record.attempt("2", "diy@v1", "val") == 1


def test_the_best_champion_and_how_many_candidates_it_has_met(tmp_path: Path) -> None:
    def record() -> Record:
        return read_record(registered(tmp_path))

    state(tmp_path, CHANGED, "1", champions=["1"], decision=decided("1", None, None, "1"))
    assert (record().best, record().attempt("2", "diy@v1", "val")) == ("1", 1)
    state(tmp_path, JUDGED, "2", decision=decided("2", "1", "1"))
    assert record().attempt("2", "diy@v1", "val") == 1  # the same once more
    assert record().attempt("2", "diy@v2", "val") == record().attempt("2", "diy@v1", "gate") == 2
    assert record().attempt("3", "diy@v1", "val") == 2
    state(tmp_path, CHANGED, "3", champions=["3", "1"], decision=decided("3", "1", "1"))
    assert (record().best, record().attempt("2", "diy@v1", "val")) == ("1", 3)  # beside another champion
    state(tmp_path, CHANGED, "4", champions=["4", "3", "1"], decision=decided("4", "3", "1", "4"))
    assert (record().best, record().attempt("5", "diy@v1", "val")) == ("4", 1)
    assert record().about("2", JUDGED)[-1].decision["champion_before"] == "1"


def test_a_candidate_that_was_chosen_from_several_counts_as_all_of_them(tmp_path: Path) -> None:
    """Of a sweep once, of another measure again."""

    def attempt(version: str, **how: Any) -> int:
        return read_record(registered(tmp_path)).attempt(version, "diy@v1", "val", **how)

    state(tmp_path, CHANGED, "1", champions=["1"], decision=decided("1", None, None, "1"))
    assert attempt("2", study="sweep a", cells=30) == 30
    state(tmp_path, JUDGED, "2", decision=decided("2", "1", "1") | {"study": "sweep a", "cells": 30})
    assert attempt("3", study="sweep a", cells=30) == 30 and attempt("3", study="sweep a", cells=40) == 40
    assert attempt("3", study="sweep b", cells=5) == 35 and attempt("3") == 31
    assert attempt("2", measure="auc", study="sweep a", cells=30) == 60
    for number in ("4", "5"):  # scored by hand on the documents of the gate
        look = {"dataset": "diy@v1", "split": "val", "champion_before": "1", "best_before": "1"}
        state(tmp_path, EVALUATED, number, decision=look)
    assert attempt("3") == 33 and attempt("4") == 32 and attempt("5", measure="auc") == 33


def test_an_approval_is_by_a_name_and_where_a_policy_says_so_by_a_key(tmp_path: Path) -> None:
    ann, bo = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
    for by, signer in (("Ann", ann), ("Bo", bo)):
        state(tmp_path, APPROVED, "1", signer, approved_by=by, files={"a": "1"})
    keys: list[Key] = [ann.public_key, bo.public_key]
    record, key = read_record(registered(tmp_path), keys=keys), ann.public_key.keyid
    approvals = [Approval("Ann", (key,)), Approval("Bo", (bo.public_key.keyid,))]
    assert record.approvals("1") == record.approvals("1", {"a": "1"}) == approvals
    assert record.approvals("1", {"a": "2"}) == record.approvals("2", {"a": "1"}) == []
    assert record.approvals("1", before=2) == approvals[:1]
    for approver, is_by in (("Ann", True), (f"Ann:{key[:12]}", True), (f"Ann:{bo.public_key.keyid}", False)):
        assert approvals[0].is_by(approver) is is_by
    assert not Approval("Ann").is_by(f"Ann:{key}") and not approvals[1].is_by("Ann")


@pytest.mark.parametrize(
    ("event", "missing"),
    [
        (CHANGED, "champions, decision"),
        (APPROVED, "approved_by"),
        (TAINTED, "dataset, documents, images"),
        ("x", "kind"),
    ],
)
def test_a_statement_that_lacks_what_its_kind_needs_is_named(tmp_path: Path, event: str, missing: str) -> None:
    state(tmp_path, event, "1")
    with pytest.raises(IntegrityError, match=rf"000001\.json: expected .*{missing}.* of '{event}'"):
        read_record(registered(tmp_path))


def test_a_signed_record_and_an_unsigned_one_are_never_mixed(tmp_path: Path) -> None:
    ann, eve = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
    keys = [ann.public_key]
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    assert read_record(registered(tmp_path), keys=[]).signatures is Signatures.NONE
    with pytest.raises(IntegrityError, match=r"000001\.json: expected a trusted key's signature, found none.* --adopt"):
        read_record(registered(tmp_path), keys=keys)
    state(tmp_path, JUDGED, "2", eve, decision={})
    for trusted in ([], keys):
        with pytest.raises(IntegrityError, match=r"00000[12]\.json: expected a trusted key's signature"):
            read_record(registered(tmp_path), keys=trusted)
    state(tmp_path, ADOPTED, "1", ann, champions=["1"], best="1")
    record = read_record(registered(tmp_path), keys=keys)
    assert record.signatures is Signatures.VERIFIED and record.champion == "1"
    assert {each.signers for each in record.statements} == {(ann.public_key.keyid,)}  # who answers for them
    assert read_record(registered(tmp_path), keys=[]).signatures is Signatures.UNCHECKED
    assert not any(each.signers for each in read_record(registered(tmp_path), keys=[]).statements)
    state(tmp_path, ADOPTED, "1", eve, champions=["3"], best="3")
    with pytest.raises(IntegrityError, match=rf"000004\.json: .* by the key {eve.public_key.keyid[:12]}"):
        read_record(registered(tmp_path), keys=keys)
    state(tmp_path, ADOPTED, "1", ann, champions=["1"], best="1")  # who adopts last answers for all before
    assert read_record(registered(tmp_path), keys=keys).champion == "1"


SUBJECT = [{"name": "models:/linker/1", "digest": {"sha256": "0" * 64}}]
SAYS = {"event": "champion", "model": {"name": "linker", "created": "1"}}


@pytest.fixture
def signer() -> CryptoSigner:
    return CryptoSigner.generate_ed25519()


@pytest.fixture
def chain(tmp_path: Path, signer: CryptoSigner) -> Chain:
    """Three statements, of which the second is not signed."""
    chain = Chain(Folder(str(tmp_path / "chain")))
    for place, by in enumerate((signer, None, signer)):
        said = chain.statements()
        assert chain.append(said[-1] if said else None, SUBJECT, {**SAYS, "place": place}, by)
    return chain


def _files(chain: Chain) -> list[Path]:
    return sorted(Path(chain.folder.uri).iterdir())


def test_statements_are_read_in_order(chain: Chain, signer: CryptoSigner) -> None:
    said = chain.statements()
    assert [each.number for each in said] == [1, 2, 3]
    assert [each.predicate["place"] for each in said] == [0, 1, 2]
    assert [each.predicate["previous"] for each in said] == ["", said[0].digest, said[1].digest]
    assert [path.name for path in _files(chain)] == ["000001.json", "000002.json", "000003.json"]
    own, other = signer.public_key, CryptoSigner.generate_ed25519().public_key
    assert [signers_of(each.envelope, [other, own]) for each in said] == [(own.keyid,), (), (own.keyid,)]
    assert [signers_of(each.envelope, [other]) for each in said] == [()] * 3


def test_the_signature_is_what_other_tools_expect(chain: Chain, signer: CryptoSigner) -> None:
    """By the specification of DSSE, calculated here: "DSSEv1" and lengths, signed as ed25519."""
    written: Mapping[str, Any] = json.loads(_files(chain)[0].read_bytes())
    assert written.keys() == {"payload", "payloadType", "signatures"}
    kind, payload = b"application/vnd.in-toto+json", b64decode(written["payload"])
    signed = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public_key.keyval["public"]))
    public.verify(b64decode(written["signatures"][0]["sig"]), signed)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1" and statement["subject"] == SUBJECT


@pytest.mark.parametrize("place", [0, 2])
def test_no_byte_can_be_changed(chain: Chain, signer: CryptoSigner, place: int) -> None:
    path = _files(chain)[place]
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with suppress(IntegrityError):
            assert not signers_of(chain.statements()[place].envelope, [signer.public_key]), at
    path.write_bytes(data)
    assert signers_of(chain.statements()[place].envelope, [signer.public_key])


def test_another_statement_signed_by_the_same_key_does_not_fit(chain: Chain, signer: CryptoSigner) -> None:
    path = _files(chain)[0]
    envelope = Envelope.from_dict(json.loads(path.read_bytes()))
    statement = json.loads(envelope.payload)
    statement["predicate"]["place"] = 7
    changed = Envelope(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode(), envelope.payload_type, {})
    changed.sign(signer)
    path.write_text(json.dumps(changed.to_dict(), sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(IntegrityError, match=r"000002\.json: expected previous"):
        chain.statements()


def test_of_many_that_follow_the_same_statement_one_is_written(chain: Chain, signer: CryptoSigner) -> None:
    last = chain.statements()[-1]

    def append(place: int) -> bool:
        return chain.append(last, SUBJECT, {**SAYS, "place": place}, signer)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(append, range(8))) == [False] * 7 + [True]
    assert len(chain.statements()) == 4
    assert len(_files(chain)) == 4  # nothing is left of the others


def test_a_statement_in_a_file_of_another_number_is_told(chain: Chain) -> None:
    _files(chain)[2].rename(Path(chain.folder.uri) / "000004.json")
    with pytest.raises(IntegrityError, match=r"expected 000003\.json next, found 000004\.json"):
        chain.statements()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"payload":"AA==","payloadType":"text/plain","signatures":[]}',
        "[]",
        '{"payload": 3}',
        write_statement("urn:multilink:index:v1", SUBJECT, {**SAYS, "number": 4}, None).decode(),
    ],
)
def test_what_is_no_statement_is_told(chain: Chain, text: str) -> None:
    (Path(chain.folder.uri) / "000004.json").write_text(text)
    with pytest.raises(IntegrityError, match=r"000004\.json: expected a statement of promotions"):
        chain.statements()


@pytest.mark.parametrize("is_written", [False, True])
def test_where_a_store_refused_a_request_what_it_has_counts(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """As S3 does with status 409: another request was under way, and failed; or it was ours, its answer lost."""
    last, add = chain.statements()[-1], Folder.add
    with monkeypatch.context() as refusing:
        refusing.setattr(Folder, "add", lambda *arguments: is_written and not add(*arguments))
        assert chain.append(last, SUBJECT, SAYS, None) is is_written
    assert chain.append(last, SUBJECT, SAYS, None) is not is_written


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILINK_KEY", str(tmp_path / "keys" / "ann.pem"))
    with pytest.raises(NotFoundError, match="make a key with multilink key"):
        own_signer()
    key = make_key(key_path())
    assert key_path().stat().st_mode & 0o777 == 0o600
    assert public_path(key_path()).name == "ann.pub.pem" and default_trust() == [public_path(key_path())]
    signer = own_signer()
    assert signer is not None and signer.public_key.keyid == key.keyid
    assert [each.keyid for each in trusted_keys(default_trust())] == [key.keyid]
    assert [each.keyid for each in trusted_keys([tmp_path / "keys"])] == [key.keyid]
    text = key_path().read_bytes()
    with pytest.raises(UsageError, match="no key was made; what is there is kept: File exists"):
        make_key(key_path())
    assert key_path().read_bytes() == text
    public_path(key_path()).unlink()  # as where a cluster mounts the private key alone
    assert [each.keyid for each in trusted_keys()] == [key.keyid]


def test_no_key_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTILINK_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert key_path() == tmp_path / "multilink" / "key.pem"
    assert own_signer() is None and default_trust() == []
    monkeypatch.setenv("MULTILINK_TRUST", f"{tmp_path}/a.pub.pem:{tmp_path}/b")
    assert default_trust() == [tmp_path / "a.pub.pem", tmp_path / "b"]
    with pytest.raises(NotFoundError, match=r"a\.pub\.pem: expected a public key"):
        trusted_keys()
    (tmp_path / "b").mkdir()
    make_key(tmp_path / "b" / "x.pem")
    monkeypatch.chdir(tmp_path / "b")
    for accident in (":", "x.pub.pem:", ".", "./", "*.pub.pem"):  # the working folder, whatever is in it
        monkeypatch.setenv("MULTILINK_TRUST", accident)
        with pytest.raises((ConfigError, NotFoundError), match="expected a public key"):
            trusted_keys()
    (tmp_path / "b" / "multilink.toml").write_text('trust = "x.pub.pem"\nkey = "x.pem"\n')
    monkeypatch.setenv("MULTILINK_TRUST", "")  # which is no setting
    signer = own_signer()
    assert signer is not None and [each.keyid for each in trusted_keys()] == [signer.public_key.keyid]


OTHER = generate_private_key(SECP256R1())
OF_ANOTHER_KIND = "expected an ed25519 key, found another kind"


@pytest.mark.parametrize(
    ("data", "private", "public"),
    [
        (b"no key", "expected a private key in PEM without a password", "expected a public key in PEM"),
        (OTHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), OF_ANOTHER_KIND, "in PEM"),
        (OTHER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "in PEM", OF_ANOTHER_KIND),
    ],
    ids=["text", "private", "public"],
)
def test_files_that_are_no_ed25519_keys_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, private: str, public: str
) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(data)
    monkeypatch.setenv("MULTILINK_KEY", str(path))
    with pytest.raises(ConfigError, match=private):
        own_signer()
    with pytest.raises(ConfigError, match=public):
        trusted_keys([path])
