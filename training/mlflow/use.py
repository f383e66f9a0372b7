"""Whether a model may be used that something names by its address: an index, a folder, MLflow's own loader.

Its record is looked up in the store that this process is set up with. Where there is no such store, or it does not know
the model, that is an error if this machine uses verified champions alone (`verify = true`); else nothing is known
against it. MLflow is imported only where a store must be asked that is no SQLite file.
"""

import hashlib
from pathlib import Path

from schemas.errors import IntegrityError, NotFoundError, UsageError
from schemas.indexes import MODEL, IndexManifest
from training.mlflow.stored import is_missing, registered_name, stored_model, tracking_uri
from training.model_files import folder_digest
from training.promotions.proof import Proof, check_use, verifies_all
from training.promotions.record import Registered


def check_address(address: str, *, tracking: str | None = None, calibration: str | None = None) -> Proof | None:
    """Refuse a model that may not be used here; return what proves it, None where that is not asked for.

    Args:
        address: of the model; `class-names` has nothing to verify.
        tracking: URI of the store; None: the one that `tracking_uri` finds for this process.
        calibration: as `check_use` takes it; raises as that does.

    Raises:
        IntegrityError: this machine uses verified champions alone, and nothing is stated on this model.
    """
    named, uri = registered_name(address), tracking or tracking_uri(None)
    model = None if named is None else _known(uri, named[0])
    if named is not None and model is not None:
        return check_use(model, named[1], calibration=calibration)
    if verifies_all() and address != "class-names":
        where = "it is not registered" if named is None else f"{uri} does not have it"
        raise IntegrityError(f"{address}: expected a champion that verifies, since verify = true; {where}")
    return None


def check_index(manifest: IndexManifest, folder: Path) -> None:
    """Refuse an index whose model may not be used; where that must verify, check every file of the index, too.

    Args:
        manifest: of the index.
        folder: of the index, on this machine.

    Raises:
        IntegrityError: as `check_address` says, or a file is another than the manifest or the statement names.
    """
    proof = check_address(manifest.model)
    if proof is None:
        return
    for entry in manifest.files:
        with (folder / entry.path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != entry.sha256:
            raise IntegrityError(f"{folder / entry.path}: expected digest {entry.sha256}, found {digest}")
    if (digest := folder_digest(folder / MODEL)) != proof.digest:
        raise IntegrityError(
            f"{folder}: its model has digest {digest}; {proof.uri} was promoted with {proof.digest}. Remove the "
            "folder and make the index anew"
        )


def _known(uri: str, name: str) -> Registered | None:
    """Return a registered model; None where there is no store, or it does not have it."""
    if is_missing(uri):
        return None
    try:
        if (found := stored_model(uri, name)) is not None:
            return found
        from training.mlflow.registry import registered
        from training.mlflow.runs import connect

        return registered(connect(uri), name)
    except NotFoundError:
        return None
    except (UsageError, ModuleNotFoundError) as problem:
        if verifies_all():
            raise UsageError(f"{uri}: cannot be asked whether the model is a champion: {problem}") from problem
        return None
