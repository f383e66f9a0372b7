"""Reading a model back by its address: a registered version, its run or name, or a folder on this machine.

A registered version's files are read once, into a folder of this process. Their digests are compared with the
promotion's, where there is one, and with the registry's; the model is made of what was read.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import mlflow
import yaml
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from schemas.indexes import MODEL, IndexManifest
from schemas.lake import Folder
from schemas.messages import IntegrityError, NotFoundError, UsageError
from training.evaluation.models import CLASS_NAMES
from training.loop.context import choose_device
from training.metrics.calibration import FILE_NAME, read_calibration
from training.mlflow.registry import champion_of_dataset, find_version, registered, versions
from training.mlflow.runs import connect, fetch_files
from training.mlflow.stored import FORMS, OF_RUN, is_missing, registered_name, tracking_uri
from training.model import LinkModel, check_files, file_digests, folder_digest
from training.promotions.keys import check_made
from training.promotions.loaded import LoadedModel, class_names
from training.promotions.proof import ADDRESS_FILE, CHANGING, Use, check_use, keys_of, verifies_all
from training.promotions.record import CHAMPION, MODEL_DIGEST_TAG, ModelVersion, read_record

Find = Callable[[str], tuple[str, str] | None]
MLMODEL = "MLmodel"  # file of a logged model that names its parts


def open_registry(tracking: str | None, models: Iterable[str] | None = None) -> mlflow.MlflowClient:
    """Return a client of the store that models are read from; of a SQLite store, which is not made for that.

    Args:
        tracking: as `tracking_uri` takes it.
        models: addresses that will be loaded; where all are folders or `class-names`, no store is needed. None:
            registered ones.

    Raises:
        NotFoundError: no store is there.
        UsageError: it cannot be opened.
    """
    uri = tracking_uri(tracking)
    named = [each for each in models or () if each != CLASS_NAMES and (":/" in each or not Path(each).is_dir())]
    if is_missing(uri) and (models is None or named):
        which = "".join(f"--model {each}: {'' if ':/' in each else 'no such folder, and '}" for each in named[:1])
        raise NotFoundError(
            f"{which}{uri}: no runs and models are there; train a model, or name another --tracking-uri"
        )
    return connect(uri)


def load(address: str, client: mlflow.MlflowClient | None, *, is_used: bool = False) -> LoadedModel:
    """Return the model at an address.

    Args:
        address: of the model.
        client: of the store; None: the address is of none.
        is_used: whether it is to be used, not only measured: it must be allowed here.

    Raises:
        NotFoundError: there is no such model, version or folder.
        UsageError: the address has none of the known forms.
        IntegrityError: the model's files are damaged, or not those that were registered; or it must be proved champion
            (`training.promotions.proof`), and is not.
        GateError: it was trained on what was taken out of its lake too long ago.
    """
    if address == CLASS_NAMES:
        return class_names()
    if ":/" not in address and Path(address).is_dir():
        if is_used:
            check_address(address)
        folder = Path(address).absolute()
        is_logged = (folder / MLMODEL).is_file()
        return _read(_data_folder(folder, "--model", address) if is_logged else folder, str(folder))
    named = registered_name(address)
    if client is not None and (run := OF_RUN.fullmatch(address)):
        if not (found := versions(client, run_id=run["run"])):
            raise NotFoundError(f"--model {address}: no model of this run is registered in {client.tracking_uri}")
        named = found[0].name, found[0].version
    if client is None or (named is None and ":/" in address):
        raise UsageError(f"--model {address}: expected {FORMS}")
    try:
        of = named or (address, CHAMPION)
        use = permitted(client, *of) if is_used else Use(find_version(client, *of))
    except NotFoundError as problem:
        if named:
            raise
        raise NotFoundError(f"--model {address}: no such folder, and {problem}; expected {FORMS}") from problem
    return load_version(use.version, use)


def open_model(address: str | None, tracking: str | None, *, dataset: str = "") -> LoadedModel:
    """Return the model at an address of a store, to be used; without one, the champion of the data set NAME[@VERSION].

    Raises as `load` and `champion_of_dataset` do.
    """
    client = None if address == CLASS_NAMES else open_registry(tracking, [address] if address else None)
    if not address:
        assert client is not None
        address = f"models:/{champion_of_dataset(client, dataset.partition('@')[0])}@{CHAMPION}"
    return load(address, client, is_used=True)


def permitted(client: mlflow.MlflowClient, name: str, version: str) -> Use:
    """Return a version that may be used here, with what its files are compared with; raises as `check_use`."""
    record = read_record(registered(client, name))
    return check_use(record, record.number(version))


def check_address(address: str, *, find: Find = registered_name, tracking: str = "") -> Use | None:
    """Refuse a model that may not be used here, by the store that this process is set up with.

    Args:
        address: of the model; `class-names` has nothing to verify.
        find: returns name and version of the registered model that the address means; None: it is of none.
        tracking: URI of the store; empty: the one that `tracking_uri` finds for this process.

    Returns:
        The version, and what its files are compared with; None where nothing is known of the model.

    Raises:
        IntegrityError: this machine uses verified champions alone, and nothing is stated on this model; or as
            `check_use` says.
        UsageError: the store cannot be asked, and this machine uses verified champions alone; or as `check_use` says.
    """
    uri, verifies = tracking or tracking_uri(None), verifies_all()
    if address == CLASS_NAMES:
        return None
    try:
        client = None if is_missing(uri) else connect(uri)
    except UsageError as problem:
        if verifies:
            raise UsageError(f"{uri}: cannot check whether the model is a champion: {problem}") from problem
        return None
    if client is not None and (named := find(address)):
        with suppress(NotFoundError):
            return permitted(client, *named)
    if verifies:
        raise IntegrityError(f"{address}: expected a champion that verifies, since verify = true; {uri} has none")
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
    checked = check_address(manifest.model)
    proof = checked and checked.proof
    if proof is None and not verifies_all():
        return
    check_made(folder, text, keys_of())
    found = file_digests(here)
    for entry in manifest.files:
        if found.get(entry.path) != entry.sha256:
            raise IntegrityError(f"{here / entry.path}: expected digest {entry.sha256}, found {found.get(entry.path)}")
    if proof and (digest := folder_digest(here / MODEL)) != proof.digest:
        raise IntegrityError(
            f"{folder.uri}: its model has digest {digest}; {proof.uri} was promoted with {proof.digest}. Remove the "
            "folder and make the index again"
        )


def load_version(version: ModelVersion, use: Use | None = None) -> LoadedModel:
    """Return a registered version's model.

    Args:
        version: of the registry.
        use: what its files are compared with; None: with the registry's digest alone.

    Raises:
        NotFoundError: its files are not there.
        IntegrityError: they are not those that were registered, or promoted.
    """
    with download(version.uri) as folder:
        return _read(folder, version.uri, use or Use(version))


def load_logged(path: Path) -> LoadedModel:
    """Return the model in a folder of a logged model, as MLflow's own loader hands it over, if it may be used here.

    That loader checks nothing, and of a store in files it gives the very folder, which others can write. Which version
    the files are is asked of the registry: by the note that MLflow before 3.18 leaves, by their run, by their digest.

    Raises:
        IntegrityError: this machine uses verified champions alone, and the registry knows no such version; or the files
            are not those that were registered or promoted; or as `check_use` says.
        UsageError: as `check_address` says.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as scratch:
        root = _logged_root(path)
        copied = Path(shutil.copytree(root, Path(scratch, "model"), symlinks=True))
        folder = copied / path.relative_to(root)
        use = check_address(str(path), find=lambda _: _version_of(copied, folder), tracking=mlflow.get_registry_uri())
        return _read(folder, str(path) if use is None else use.version.uri, use)


def _version_of(root: Path, folder: Path) -> tuple[str, str] | None:
    """Return name and number of the version that the files of a logged model are; None: the registry has none."""
    if (root / ADDRESS_FILE).is_file():
        note = yaml.safe_load((root / ADDRESS_FILE).read_text(encoding="utf-8"))
        return str(note["model_name"]), str(note["model_version"])
    if not (root / MLMODEL).is_file():
        return None
    client, run, digest = mlflow.MlflowClient(), Model.load(str(root)).run_id, folder_digest(folder)
    of_run = versions(client, run_id=run) if run else []
    found = of_run or versions(client, **{MODEL_DIGEST_TAG: digest})
    first = next((each for each in found if each.digest == digest), next(iter(found), None))
    return None if first is None else (first.name, first.version)


def _read(folder: Path, uri: str, use: Use | None = None) -> LoadedModel:
    """Return the model of a folder, once its files are those that are expected.

    Args:
        folder: of the model, in the folder of its logged model where it has one.
        uri: address that it is known by.
        use: a version of the registry, whose digest the files must have, with what else they are compared with.
    """
    root = _logged_root(folder)
    calibration = read_calibration(root / FILE_NAME) if (root / FILE_NAME).is_file() and root != folder else None
    files = {} if use is None else version_files(root)
    if use is not None:
        check_files(folder, use.version.digest or None)
        use.check(files, "" if calibration is None else calibration.digest)
    return LoadedModel(
        model=LinkModel.load(folder, choose_device()),
        uri=uri,
        version=None if use is None else use.version,
        calibration=calibration,
        files=files,
    )


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write a model's files as they were registered, whatever code has written them: their digest is the same."""
    if loaded.version is None:
        loaded.model.save(folder)
        return
    with download(loaded.uri) as source:
        check_files(source, loaded.version.digest or None)
        shutil.copytree(source, folder, dirs_exist_ok=True)


def version_files(root: Path) -> dict[str, str]:
    """Return path -> SHA-256 (hex) of all files in the folder of a logged model, but `CHANGING`.

    Raises:
        IntegrityError: one is a link, whose target could be changed.
    """
    if links := sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_symlink()):
        raise IntegrityError(f"{root}: expected files, found a link: {links[0]}")
    return {name: digest for name, digest in file_digests(root).items() if name.partition("/")[0] not in CHANGING}


def _logged_root(folder: Path) -> Path:
    """Return the folder of the logged model that a model's files are in; of none, the model's own."""
    return next((parent for parent in folder.parents if (parent / MLMODEL).is_file()), folder)


@contextmanager
def download(uri: str, *, option: str = "--model") -> Iterator[Path]:
    """Give a temporary folder with what `LinkModel.save` wrote into the logged model.

    Raises:
        NotFoundError: there is none; the message begins with `option`, which named it.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as scratch:
        try:
            folder = fetch_files(partial(mlflow.artifacts.download_artifacts, artifact_uri=uri, dst_path=scratch))
        except (MlflowException, OSError) as problem:
            raise NotFoundError(f"{option} {uri}: no model of multilink there: {_reason(problem)}") from problem
        yield _data_folder(folder, option, uri)


def _data_folder(folder: Path, option: str, uri: str) -> Path:
    """Return the folder within a logged model that `LinkModel.save` wrote; errors as of `download`."""
    try:
        return folder / str(Model.load(str(folder)).flavors["python_function"]["data"])
    except (MlflowException, yaml.YAMLError, OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
        reason = _reason(problem)
        raise NotFoundError(f"{option} {uri}: no model of multilink there: its {MLMODEL}: {reason}") from problem


def _reason(problem: Exception) -> str:
    """Return one line: of several files that MLflow could not bring, what became of the first."""
    first, *others = str(problem).splitlines() or [type(problem).__name__]
    return next((line for line in others if line and not line.startswith("#####")), first)
