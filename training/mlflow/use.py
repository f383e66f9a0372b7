"""Whether a model may be used that something names by its address: an index, a folder, MLflow's own loader.

Its record is looked up in the store that this process is set up with. Where there is no such store, or it does not know
the model, that is an error if this machine uses verified champions alone (`verify = true`); else nothing is known
against it.
"""

import hashlib
from pathlib import Path

from schemas.errors import IntegrityError, NotFoundError, UsageError
from schemas.lake import Folder
from schemas.links import MODEL, IndexManifest
from training.evaluation.class_names import CLASS_NAMES
from training.mlflow.registry import registered
from training.mlflow.runs import connect
from training.mlflow.stored import is_missing, registered_name, tracking_uri
from training.model_files import folder_digest
from training.promotions.made import check_made
from training.promotions.proof import Use, check_use, keys_of, verifies_all
from training.promotions.record import read_record


def check_address(address: str, *, tracking: str | None = None) -> Use | None:
    """Refuse a model that may not be used here; return what its files are compared with, None where nothing is known.

    Args:
        address: of the model; `class-names` has nothing to verify.
        tracking: URI of the store; None: the one that `tracking_uri` finds for this process.

    Raises:
        IntegrityError: this machine uses verified champions alone, and nothing is stated on this model; or as
            `check_use` says.
        UsageError: the store cannot be asked, and this machine uses verified champions alone.
    """
    named, uri = registered_name(address), tracking or tracking_uri(None)
    where = "it is not registered" if named is None else f"{uri} does not have it"
    if named is not None and not is_missing(uri):
        try:
            record = read_record(registered(connect(uri), named[0]))
            return check_use(record, record.number(named[1]))
        except NotFoundError:
            pass
        except UsageError as problem:
            if verifies_all():
                raise UsageError(f"{uri}: cannot be asked whether the model is a champion: {problem}") from problem
            return None
    if verifies_all() and address != CLASS_NAMES:
        raise IntegrityError(f"{address}: expected a champion that verifies, since verify = true; {where}")
    return None


def check_index(folder: Folder, text: bytes, manifest: IndexManifest, here: Path) -> None:
    """Refuse an index whose model may not be used; where that must verify, it must be signed, and whole.

    Args:
        folder: of the index.
        text: its manifest, as it was read.
        manifest: the same.
        here: where its files are on this machine.

    Raises:
        IntegrityError: as `check_address` says; no trusted key has signed the index; or a file is another than the
            manifest or the statement names.
    """
    use = check_address(manifest.model)
    proof = None if use is None else use.proof
    if proof is None and not verifies_all():
        return
    check_made(folder, text, keys_of())
    for entry in manifest.files:
        with (here / entry.path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != entry.sha256:
            raise IntegrityError(f"{here / entry.path}: expected digest {entry.sha256}, found {digest}")
    if proof is not None and (digest := folder_digest(here / MODEL)) != proof.digest:
        raise IntegrityError(
            f"{folder.uri}: its model has digest {digest}; {proof.uri} was promoted with {proof.digest}. Remove the "
            "folder and make the index again"
        )
