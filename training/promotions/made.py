"""Who made an index, and with which model: a signed statement beside its manifest, `signature.json`.

The manifest has the digest of every file of the index, so who signs its bytes signs all of it. The same key gives the
same bytes. On a machine without a key nothing is signed, and nobody who uses verified champions alone opens the index.
"""

import hashlib
import json
from collections.abc import Sequence

from securesystemslib.signer import Key

from schemas.errors import IntegrityError
from schemas.lake import MANIFEST, Folder
from schemas.links import SIGNATURE
from training.promotions.chain import read_statement, signers_of, write_statement
from training.promotions.keys import own_signer, trusted_keys

PREDICATE_TYPE = "urn:multilink:index:v1"
_REMEDY = "remove the folder, and make it again with multilink index on a machine with a key"


def sign_index(manifest: bytes) -> bytes | None:
    """Return what to write beside the manifest of an index; None: nothing, this machine has no key."""
    signer, about = own_signer(), {name: json.loads(manifest).get(name, "") for name in ("model", "dataset")}
    return None if signer is None else write_statement(PREDICATE_TYPE, [_subject(manifest)], about, signer)


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
    try:
        envelope, subject, _ = read_statement(index.read(SIGNATURE), PREDICATE_TYPE, where)
        is_signed = bool(signers_of(envelope, keys))
    except (FileNotFoundError, IntegrityError) as problem:
        raise IntegrityError(f"{where}: expected a trusted key's signature of this index: {_REMEDY}") from problem
    if not is_signed:
        raise IntegrityError(f"{where}: expected a trusted key's signature of this index: {_REMEDY}")
    if subject != [_subject(manifest)]:
        raise IntegrityError(f"{where}: is not of this manifest: {_REMEDY}")


def _subject(manifest: bytes) -> dict[str, object]:
    return {"name": MANIFEST, "digest": {"sha256": hashlib.sha256(manifest).hexdigest()}}
