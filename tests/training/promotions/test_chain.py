"""The chain of statements: every byte counts, the order counts, and of two that follow the same one is written."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from schemas.errors import ConfigError, IntegrityError, NotFoundError, UsageError
from schemas.lake import Folder
from training.promotions.chain import Chain, signers_of, write_statement
from training.promotions.keys import default_trust, key_path, make_key, own_signer, public_path, trusted_keys

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
    from base64 import b64decode

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

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


def test_files_that_are_no_ed25519_keys_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    path, other = tmp_path / "key.pem", generate_private_key(SECP256R1())
    monkeypatch.setenv("MULTILINK_KEY", str(path))
    path.write_text("no key")
    with pytest.raises(ConfigError, match="expected a private key in PEM without a password"):
        own_signer()
    with pytest.raises(ConfigError, match="expected a public key in PEM"):
        trusted_keys([path])
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ConfigError, match="expected an ed25519 key, found another kind"):
        own_signer()
    path.write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ConfigError, match="expected an ed25519 key, found another kind"):
        trusted_keys([path])
