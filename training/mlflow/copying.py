"""A version goes to another registry, such as from staging to production, with all that belongs to it.

The run that trained it goes along: parameters, metrics of every epoch, data set, artefacts (configuration, curve,
reports, decision). The version is the last write but for its alias: a copy that dies on the way leaves a failed run,
and no version. Its model's digest goes along as a tag, so that what did not arrive as it was sent is not loaded.
"""

import tempfile
from functools import partial
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Param, Run, RunTag

from schemas.messages import Say, UsageError, without_passwords
from training.mlflow.champions import inherited, record_of
from training.mlflow.promotion import study_of
from training.mlflow.registering import MODEL_ARTIFACT
from training.mlflow.registry import challenge, find_version, logged_model, make_name, versions
from training.mlflow.runs import (
    CHOSEN_TAG,
    COPIED_TAG,
    METRICS_AT_ONCE,
    TrackedRun,
    connect,
    experiment_id,
    fetch_files,
    finishing,
)
from training.model import folder_digest
from training.promotions.proof import ADDRESS_FILE
from training.promotions.record import CHANGED, DATASET_TAG, JUDGED, ModelVersion

DIGEST_TAG = "digest"
SYSTEM_TAGS = "mlflow."


def copy_version(
    source: str, name: str, version: str, *, to: str, new_name: str | None = None, say: Say
) -> tuple[ModelVersion, bool]:
    """Copy a version to another registry, where it becomes the challenger; doing it again changes nothing.

    Returns:
        The version there, whose tags say what it was copied from (`COPIED_TAG`) and the digest of all its files
        (`DIGEST_TAG`), and whether it is new.

    Args:
        source: URI of the registry it is in.
        name: registered model.
        version: number or alias.
        to: URI of the registry it goes to.
        new_name: registered model there; None: the same.
        say: takes a line of progress.

    Raises:
        NotFoundError: there is no such model or version.
        UsageError: a registry cannot be opened, or both are the same; or the version is tainted.
    """
    if source == to:
        raise UsageError(f"--to {to}: expected another registry than the one the model is in")
    with tempfile.TemporaryDirectory(prefix="multilink-copy-") as scratch:
        folder, client = Path(scratch), connect(source)
        original = find_version(client, name, version)
        if original.run_id is None:
            raise UsageError(f"{original.uri}: expected a version with the run that trained it, found none")
        record = record_of(client, original.name)
        # Which another registry's record would not state.
        if taint := record.taint(original.version) or inherited(client, original.tags):
            raise UsageError(f"{original.uri} is tainted and is not copied: {taint}")
        run, logged = client.get_run(original.run_id), logged_model(client, original)
        model = _download(logged.artifact_location, folder / "model")
        files = _download(run.info.artifact_uri, folder / "files")
        metrics = [point for key in run.data.metrics for point in client.get_metric_history(original.run_id, key)]
        uri, digest = f"{without_passwords(source)} {original.uri}", folder_digest(model)

        decisions = [each.decision for each in record.about(original.version, CHANGED, JUDGED)]
        chosen_from = max([study_of(client, original)[1], *(each.get("attempt", 1) for each in decisions)])
        client = connect(to)
        new_name = new_name or original.name
        for known in versions(client, name=new_name):
            if (known.tags.get(COPIED_TAG), known.tags.get(DIGEST_TAG)) == (uri, digest):
                challenge(client, new_name)
                return known, False
        say(f"copying {original.uri} and its run to {to}")
        experiment = experiment_id(client, f"multilink-{original.tags.get(DATASET_TAG, original.name)}")
        made = client.create_run(experiment, run_name=run.info.run_name)
        with finishing(TrackedRun(client, made.info.run_id, {})) as copied:
            _send_run(client, copied.id, run, uri)
            sent = client.create_logged_model(experiment, name=MODEL_ARTIFACT, source_run_id=copied.id)
            for each in logged.metrics or ():
                about = sent.model_id, each.dataset_name, each.dataset_digest
                metrics.append(Metric(each.key, each.value, each.timestamp, each.step, *about))
            for start in range(0, len(metrics), METRICS_AT_ONCE):
                client.log_batch(copied.id, metrics=metrics[start : start + METRICS_AT_ONCE])
            if any(files.iterdir()):
                client.log_artifacts(copied.id, str(files))
            client.log_model_artifacts(sent.model_id, str(model))
            client.finalize_logged_model(sent.model_id, "READY")
    make_name(client, new_name)
    tags = {**original.tags, COPIED_TAG: uri, DIGEST_TAG: digest, CHOSEN_TAG: str(chosen_from)}
    stored = client.create_model_version(new_name, sent.model_uri, run_id=copied.id, tags=tags, model_id=sent.model_id)
    challenge(client, new_name)
    return find_version(client, new_name, str(stored.version)), True


def _send_run(client: mlflow.MlflowClient, run_id: str, original: Run, uri: str) -> None:
    """Write parameters, tags and data sets of a run."""
    data = original.data
    tags = [RunTag(key, value) for key, value in data.tags.items() if not key.startswith(SYSTEM_TAGS)]
    params = [Param(key, value) for key, value in data.params.items()]
    client.log_batch(run_id, params=params, tags=[*tags, RunTag(COPIED_TAG, uri)])
    client.log_inputs(run_id, original.inputs.dataset_inputs)


def _download(uri: str, folder: Path) -> Path:
    """Return a fresh folder with all files below an artefact URI, but for MLflow's note of the address; maybe none."""
    folder.mkdir(parents=True)
    if mlflow.artifacts.list_artifacts(artifact_uri=uri):
        folder = fetch_files(partial(mlflow.artifacts.download_artifacts, artifact_uri=uri, dst_path=str(folder)))
    (folder / ADDRESS_FILE).unlink(missing_ok=True)
    return folder
