"""A version goes to another registry, such as from staging to production, with all that belongs to it.

The run that trained it goes along: parameters, metrics of every epoch, data set, artefacts (configuration, curve,
reports, decision). Model and artefacts are read back from the new place and compared by digest before the version is
made, which is the last write but for its alias: a copy that dies on the way leaves a failed run, and no version.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, Run, RunTag
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from schemas.errors import IntegrityError, UsageError
from training.mlflow.registry import (
    CHALLENGER,
    MODEL_ARTIFACT,
    ModelVersion,
    artifact_folder,
    find_version,
    make_name,
)
from training.mlflow.runs import DATASET_TAG, TrackedRun, connect, experiment_id, fetch_files, finishing
from training.registry.pyfunc_model import ADDRESS_FILE

COPIED_TAG, DIGEST_TAG, RUN_TAG = "copied_from", "digest", "run_id"
METRICS_AT_ONCE = 1000
SYSTEM_TAGS = "mlflow."


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A version and what it was copied from.

    Attributes:
        version: in the new registry.
        copied_from: registry and version it was copied from.
        digest: of all its files, SHA-256 (hex).
        is_new: False where it had been copied before.
    """

    version: ModelVersion
    copied_from: str
    digest: str
    is_new: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.version.name,
            "version": self.version.version,
            "copied_from": self.copied_from,
            "digest": self.digest,
            "is_new": self.is_new,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Original:
    """A version with its run, downloaded.

    Attributes:
        version: in the registry it is from.
        uri: registry and version.
        run: that trained it.
        metrics: of every epoch.
        model: local folder with its files.
        files: local folder with its run's artefacts.
    """

    version: ModelVersion
    uri: str
    run: Run
    metrics: tuple[Metric, ...]
    model: Path
    files: Path


def copy_version(
    source: str, name: str, version: str, *, to: str, new_name: str | None = None, say: Callable[[str], None]
) -> Copy:
    """Copy a version to another registry, where it becomes the challenger; doing it again changes nothing.

    Args:
        source: URI of the registry it is in.
        name: registered model.
        version: number or alias.
        to: URI of the registry it goes to.
        new_name: registered model there; None: the same.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version.
        UsageError: a registry cannot be opened, or both are the same.
        IntegrityError: what arrived is not what was sent.
    """
    if source == to:
        raise UsageError(f"--to {shown_uri(to)}: expected another registry than the one the model is in")
    with tempfile.TemporaryDirectory(prefix="multilink-copy-") as scratch:
        original = _fetch(connect(source), name, version, Path(scratch))
        digest = folder_digest(original.model)
        target = connect(to)
        known = _known(target, new_name or name, original.uri, digest)
        if known is None:
            say(f"copying {original.version.uri} and its run to {shown_uri(to)}")
            arrived = _send(target, original, new_name or name, digest, Path(scratch))
            target.set_registered_model_alias(arrived.name, CHALLENGER, arrived.version)
        return Copy(version=known or arrived, copied_from=original.uri, digest=digest, is_new=known is None)


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 (hex) of a folder's files: relative paths and contents, in sorted order."""
    lines = (f"{content}  {name}\n" for name, content in sorted(_file_digests(folder).items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def shown_uri(uri: str) -> str:
    """Return a registry's URI as it may be shown and stored: without a password."""
    try:
        return make_url(uri).render_as_string(hide_password=True)
    except ArgumentError:
        return uri


def _fetch(client: mlflow.MlflowClient, name: str, version: str, scratch: Path) -> _Original:
    """Return a version and its run, with their files in fresh folders."""
    found = find_version(client, name, version)
    if found.run_id is None:
        raise UsageError(f"{found.uri}: expected a version with the run that trained it, found none")
    run = client.get_run(found.run_id)
    model = _download(artifact_folder(client, found), scratch / "model")
    (model / ADDRESS_FILE).unlink(missing_ok=True)
    metrics = tuple(metric for key in run.data.metrics for metric in client.get_metric_history(found.run_id, key))
    return _Original(
        version=found,
        uri=f"{shown_uri(client.tracking_uri)} {found.uri}",
        run=run,
        metrics=metrics,
        model=model,
        files=_download(run.info.artifact_uri, scratch / "files"),
    )


def _known(client: mlflow.MlflowClient, name: str, uri: str, digest: str) -> ModelVersion | None:
    """Return the version that was copied from there with the same content before, if any."""
    for stored in client.search_model_versions(f"name = '{name}'"):
        if stored.tags.get(COPIED_TAG) == uri and stored.tags.get(DIGEST_TAG) == digest:
            return find_version(client, name, str(stored.version))
    return None


def _send(client: mlflow.MlflowClient, original: _Original, name: str, digest: str, scratch: Path) -> ModelVersion:
    """Make the run and the version in another registry."""
    version = original.version
    experiment = experiment_id(client, f"multilink-{version.tags.get(DATASET_TAG, version.name)}")
    made = client.create_run(experiment, run_name=original.run.info.run_name)
    with finishing(TrackedRun(client, made.info.run_id, {})) as run:
        _send_run(client, run.id, original)
        model = client.create_logged_model(experiment, name=MODEL_ARTIFACT, source_run_id=run.id)
        client.log_model_artifacts(model.model_id, str(original.model))
        client.finalize_logged_model(model.model_id, "READY")
        _compare(original.model, model.artifact_location, scratch / "model-back")
        _compare(original.files, made.info.artifact_uri, scratch / "files-back")
    own_run = {RUN_TAG: run.id} if RUN_TAG in version.tags else {}
    tags = {**version.tags, **own_run, COPIED_TAG: original.uri, DIGEST_TAG: digest}
    make_name(client, name)
    stored = client.create_model_version(
        name, source=model.artifact_location, run_id=run.id, tags=tags, model_id=model.model_id
    )
    return find_version(client, name, str(stored.version))


def _send_run(client: mlflow.MlflowClient, run_id: str, original: _Original) -> None:
    """Write everything of a run but its state."""
    data = original.run.data
    tags = [RunTag(key, value) for key, value in data.tags.items() if not key.startswith(SYSTEM_TAGS)]
    params = [Param(key, value) for key, value in data.params.items()]
    client.log_batch(run_id, params=params, tags=[*tags, RunTag(COPIED_TAG, original.uri)])
    for start in range(0, len(original.metrics), METRICS_AT_ONCE):
        client.log_batch(run_id, metrics=original.metrics[start : start + METRICS_AT_ONCE])
    client.log_inputs(run_id, original.run.inputs.dataset_inputs)
    if any(original.files.iterdir()):
        client.log_artifacts(run_id, str(original.files))


def _compare(sent: Path, uri: str, scratch: Path) -> None:
    here, there = _file_digests(sent), _file_digests(_download(uri, scratch))
    differing = sorted(name for name in here | there if here.get(name) != there.get(name))
    if differing:
        raise IntegrityError(f"{uri}: expected the files that were sent, found others: {', '.join(differing)}")


def _file_digests(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 (hex) of each file; MLflow's note of where it was downloaded from is none."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != ADDRESS_FILE:
            with path.open("rb") as stream:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def _download(uri: str, folder: Path) -> Path:
    """Return a fresh folder with all files below an artefact URI; there may be none."""
    folder.mkdir(parents=True)
    if mlflow.artifacts.list_artifacts(artifact_uri=uri):
        return fetch_files(partial(mlflow.artifacts.download_artifacts, artifact_uri=uri, dst_path=str(folder)))
    return folder
