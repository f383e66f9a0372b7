"""Who made an index, and with which model: a signed statement beside its manifest, `signature.json`.

The manifest has the digest of every file of the index, so who signs its bytes signs all of it. The same key gives the
same bytes. On a machine without a key nothing is signed, and nobody who uses verified champions alone opens the index.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, Key

from schemas.errors import IntegrityError
from schemas.lake import MANIFEST, Folder
from schemas.links import SIGNATURE
from schemas.versions import canonical_json
from training.promotions.chain import PAYLOAD_TYPE, STATEMENT_TYPE
from training.promotions.keys import own_signer, trusted_keys

PREDICATE_TYPE = "urn:multilink:index:v1"


@dataclass(frozen=True, slots=True)
class Maker:
    """Who makes indexes on this machine.

    Attributes:
        signer: signs them; None: nobody does.
        keys: that are trusted.
    """

    signer: CryptoSigner | None
    keys: Sequence[Key]

    @classmethod
    def here(cls) -> "Maker":
        """Return the maker that this machine is set up as."""
        return cls(own_signer(), trusted_keys())

    def sign(self, manifest: bytes) -> bytes | None:
        """Return what to write beside a manifest; None: nothing."""
        if self.signer is None:
            return None
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": MANIFEST, "digest": {"sha256": hashlib.sha256(manifest).hexdigest()}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {name: json.loads(manifest).get(name, "") for name in ("model", "dataset")},
        }
        envelope = Envelope(canonical_json(statement).encode(), PAYLOAD_TYPE, {})
        envelope.sign(self.signer)
        return canonical_json(envelope.to_dict()).encode()

    def accepts(self, index: Folder) -> bool:
        """Return whether an index may be used for another: by a trusted key, where this machine signs its own."""
        if self.signer is None:
            return True
        try:
            check_made(index, index.read(MANIFEST), self.keys)
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
        envelope = Envelope.from_dict(json.loads(index.read(SIGNATURE)))
        envelope.verify(list(keys), 1)
        statement: Mapping[str, Any] = json.loads(envelope.payload)
        kinds = envelope.payload_type, statement["predicateType"]
        (subject,) = statement["subject"]
    except (FileNotFoundError, VerificationError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise IntegrityError(f"{where}: expected a trusted key's signature of this index: {_REMEDY}") from problem
    digest = hashlib.sha256(manifest).hexdigest()
    if kinds != (PAYLOAD_TYPE, PREDICATE_TYPE) or subject != {"name": MANIFEST, "digest": {"sha256": digest}}:
        raise IntegrityError(f"{where}: is not of this manifest, whose digest is {digest}: {_REMEDY}")


_REMEDY = "remove the folder, and make it again with multilink index on a machine with a key"
