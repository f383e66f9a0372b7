"""Ed25519 keys: one that signs what this machine promotes, and the public ones of others that are trusted.

The private key lies in a file that its owner alone can read: `$MULTILINK_KEY`, else `key` of the project file, else
`multilink/key.pem` in the user's configuration folder. The public key lies beside it, `key.pub.pem`, and is what others
are given. A key is known by the SHA-256 of its public part (`keyid`). No server is needed.

An index is signed, too: a statement beside its manifest, `signature.json`, says who made it, and with which model. The
manifest has the digest of every file of the index, so who signs its bytes signs all of it. The same key gives the same
bytes. On a machine without a key nothing is signed, and nobody who uses verified champions alone opens the index.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from schemas.indexes import SIGNATURE
from schemas.lake import MANIFEST, Folder
from schemas.messages import ConfigError, IntegrityError, NotFoundError, UsageError
from training.project import KEY, TRUST, VARIABLES, setting
from training.promotions.chain import read_statement, signers_of, write_statement

PUBLIC_SUFFIX = ".pub.pem"
INDEX_TYPE = "urn:multilink:index:v1"


def key_path() -> Path:
    """Return where the private key of this machine's user is, or would be."""
    named = setting(KEY)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(named).expanduser() if named else home / "multilink" / "key.pem"


def public_path(private: Path) -> Path:
    """Return where the public part of a private key is."""
    return private.with_name(private.name.removesuffix(".pem") + PUBLIC_SUFFIX)


def make_key(path: Path) -> SSlibKey:
    """Make a key: the private part, which its owner alone can read, and the public one beside it.

    Raises:
        UsageError: a key is there already, or the folder cannot be written.
    """
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        public_path(path).write_bytes(public)
    except OSError as problem:
        where = problem.filename or path
        raise UsageError(f"{where}: no key was made; what is there is kept: {problem.strerror}") from problem
    return SSlibKey.from_crypto(private.public_key())


def own_signer() -> CryptoSigner | None:
    """Return what signs with the key of this machine's user; None where there is no key.

    Raises:
        NotFoundError: a setting names a file that is not there.
        ConfigError: the file is no private ed25519 key.
    """
    path = key_path()
    if not path.is_file():
        if setting(KEY):
            raise NotFoundError(f"{VARIABLES[KEY]}: there is no {path}; make a key with multilink key")
        return None
    load = partial(load_pem_private_key, password=None)
    return CryptoSigner(_read_key(path, load, Ed25519PrivateKey, "a private key in PEM without a password"))


def trusted_keys(paths: Iterable[Path] | None = None) -> list[SSlibKey]:
    """Return public keys out of PEM files, and of folders with files `*.pub.pem`.

    Args:
        paths: of files and folders; None: those that this machine is set up with (`default_trust`), or else the key
            that belongs to its own private one.

    Raises:
        NotFoundError: there is no such file, or a folder has none.
        ConfigError: a file is no public ed25519 key, or a path is empty: that would be the working folder.
    """
    named = default_trust() if paths is None else paths
    signer = own_signer() if paths is None and not named and key_path().is_file() else None
    keys = [] if signer is None else [signer.public_key]
    for path in named:
        if path == Path():
            raise ConfigError("trust: expected a public key or a folder of them, found the working folder or nothing")
        files = sorted(path.glob(f"*{PUBLIC_SUFFIX}")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise NotFoundError(f"--trust {path}: expected a public key in PEM, or a folder of *{PUBLIC_SUFFIX}")
        read = partial(_read_key, load=load_pem_public_key, kind=Ed25519PublicKey, what="a public key in PEM")
        keys += [SSlibKey.from_crypto(read(file)) for file in files]
    return keys


def default_trust() -> list[Path]:
    """Return the files or folders that are set to be trusted (`setting`), else one's own public key if there is one."""
    named, own = setting(TRUST), public_path(key_path())
    return [Path(each) for each in named.split(os.pathsep)] if named else [own] * own.is_file()


def _read_key(path: Path, load: Callable[[bytes], Any], kind: type[Any], what: str) -> Any:
    """Return the key of a file; raises a `ConfigError` where it is none, or of another kind."""
    try:
        key = load(path.read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise ConfigError(f"{path}: expected {what}: {problem}") from problem
    if not isinstance(key, kind):
        raise ConfigError(f"{path}: expected an ed25519 key, found another kind")
    return key


def sign_index(manifest: bytes) -> bytes | None:
    """Return what to write beside the manifest of an index; None: nothing, this machine has no key."""
    signer, about = own_signer(), {name: json.loads(manifest).get(name, "") for name in ("model", "dataset")}
    return None if signer is None else write_statement(INDEX_TYPE, [_subject(manifest)], about, signer)


def accepts_index(index: Folder) -> bool:
    """Return whether an index may be used for another: by a trusted key, where this machine signs its own."""
    try:
        if own_signer() is not None:
            check_made(index, index.read(MANIFEST), trusted_keys())
    except (IntegrityError, FileNotFoundError):
        return False
    return True


def check_made(index: Folder, manifest: bytes, keys: Sequence[Key]) -> None:
    """Refuse an index that no trusted key has signed.

    Args:
        index: its folder.
        manifest: the bytes that were read of it.
        keys: that are trusted.

    Raises:
        IntegrityError: there is no such signature, or it is of another manifest.
    """
    where = f"{index.uri}/{SIGNATURE}"
    with suppress(FileNotFoundError, IntegrityError):
        envelope, subject, _ = read_statement(index.read(SIGNATURE), INDEX_TYPE, where)
        if subject == [_subject(manifest)] and signers_of(envelope, keys):
            return
    raise IntegrityError(
        f"{where}: expected a trusted key's signature of this manifest: remove the folder, and make it again with "
        "multilink index on a machine with a key"
    )


def _subject(manifest: bytes) -> dict[str, object]:
    return {"name": MANIFEST, "digest": {"sha256": hashlib.sha256(manifest).hexdigest()}}
