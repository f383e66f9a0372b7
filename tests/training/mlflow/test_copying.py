"""A version is copied whole to another registry, and a workspace that is moved or copied reads its own files."""

import shutil
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Metric

from schemas.errors import UsageError
from schemas.lake import Lake
from training.mlflow.champions import record_of, taint
from training.mlflow.copying import copy_version
from training.mlflow.loading import load
from training.mlflow.promotion import promote
from training.mlflow.registering import attach, register
from training.mlflow.registry import find_version, logged_model, versions
from training.mlflow.runs import connect, experiment_id
from training.mlflow.stored import relocate
from training.model import LinkModel, folder_digest
from training.promotions.record import CHANGED, JUDGED


def _files(client: mlflow.MlflowClient, version: str, folder: Path) -> Path:
    connect(client.tracking_uri)
    found = Path(mlflow.artifacts.download_artifacts(artifact_uri=f"models:/linker/{version}", dst_path=str(folder)))
    (found / "registered_model_meta").unlink()  # MLflow's note of the address
    return found


def test_what_was_trained_on_data_that_was_taken_out_goes_to_no_other_registry(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, empty_store: str
) -> None:
    promote(client, "linker", "1", say=print)
    assert [each.version for each in taint(client, registry_lake, "synthetic", "v1", documents=1, images=2)] == ["1"]
    with pytest.raises(UsageError, match="tainted"):
        copy_version(client.tracking_uri, "linker", "champion", to=empty_store, say=print)
    assert versions(connect(empty_store)) == []


def test_a_copy_has_all_that_the_original_has(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    trained: Path,
    empty_store: str,
    tmp_path: Path,
) -> None:
    original = find_version(client, "linker", "1")
    client.log_param(original.run_id, "training.epochs", "4")
    for step, value in enumerate((0.5, 0.25)):
        client.log_metric(original.run_id, "train_loss", value, step=step)
    report = tmp_path / "index.html"
    report.write_text("<p>87 AUC</p>")
    client.log_artifact(original.run_id, str(report), "report")
    attach(client, original, report, "report")
    model_id = logged_model(client, original).model_id
    score = Metric("test_auc", 87.0, 1, 0, model_id=model_id, dataset_name="synthetic", dataset_digest="v1")
    client.log_batch(original.run_id, metrics=[score])
    promote(client, "linker", "1", say=print)

    copied, is_new = copy_version(client.tracking_uri, "linker", "champion", to=empty_store, say=print)
    target = connect(empty_store)
    arrived = find_version(target, "linker", "challenger")
    assert is_new and arrived == copied and copied.version == "1"
    digest = copied.tags["digest"]
    assert arrived.tags == find_version(connect(client.tracking_uri), "linker", "1").tags | {
        "copied_from": f"{client.tracking_uri} models:/linker/1",
        "digest": digest,
        "chosen_from": "1",
    }
    assert record_of(target, "linker").about("1", CHANGED, JUDGED) == []

    folders = [_files(client, "1", tmp_path / "one"), _files(target, "1", tmp_path / "two")]
    assert folder_digest(folders[0]) == folder_digest(folders[1]) == digest
    assert (folders[1] / "report" / "index.html").read_text() == "<p>87 AUC</p>"
    run = target.get_run(arrived.run_id)
    assert run.info.status == "FINISHED" and run.data.params == {"training.epochs": "4"}
    history = target.get_metric_history(arrived.run_id, "train_loss")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 0.25)]
    assert "report" in {item.path for item in target.list_artifacts(arrived.run_id)}
    (score,) = logged_model(target, arrived).metrics
    assert (score.key, score.value, score.run_id, score.dataset_name) == ("test_auc", 87.0, arrived.run_id, "synthetic")
    assert run.data.metrics["test_auc"] == 87.0
    assert load("models:/linker/1", target).model.digest() == LinkModel.load(trained).digest()
    assert promote(target, "linker", "challenger", lake=registry_lake, say=print).decision.is_promoted

    again, is_new = copy_version(client.tracking_uri, "linker", "1", to=empty_store, say=print)
    assert not is_new and again.version == "1"
    assert len(target.search_model_versions("name = 'linker'")) == 1


def test_a_copy_that_dies_on_the_way_is_no_version(
    client: mlflow.MlflowClient,
    registered: str,
    empty_store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def dies(*_: object) -> None:
        raise OSError("the store is full")

    monkeypatch.setattr(mlflow.MlflowClient, "log_model_artifacts", dies)
    with pytest.raises(OSError, match="the store is full"):
        copy_version(client.tracking_uri, "linker", "1", to=empty_store, say=print)
    target = connect(empty_store)
    assert not target.search_registered_models()
    experiment = target.get_experiment_by_name("multilink-synthetic")
    assert [run.info.status for run in target.search_runs([experiment.experiment_id])] == ["FAILED"]


def test_a_registry_is_not_copied_into_itself(client: mlflow.MlflowClient, registered: str) -> None:
    with pytest.raises(UsageError, match="expected another registry"):
        copy_version(client.tracking_uri, "linker", "1", to=client.tracking_uri, say=print)


def write_workspace(folder: Path, template: Path, model: Path) -> str:
    """Register a model in a workspace with a lake of its own, as training does; return the store's URI."""
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    client = connect(f"sqlite:///{folder}/mlflow.db")
    experiment = experiment_id(client, "multilink-synthetic")
    run = client.create_run(experiment, tags={"lake": f"{folder}/lake"})
    client.log_text(run.info.run_id, "kept", "note.txt")
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": f"{folder}/lake", "elsewhere": "/other/lake"}
    register(client, model, name="linker", run_id=run.info.run_id, tags=tags)
    return client.tracking_uri


def test_a_moved_workspace_is_said_and_mended(tmp_path: Path, template: Path, trained: Path) -> None:
    name = "moved with a space"
    write_workspace(tmp_path / "first", template, trained)
    (tmp_path / "first").rename(tmp_path / name)
    uri = f"sqlite:///{tmp_path}/{name}/mlflow.db"
    with pytest.raises(UsageError, match=r"was moved or copied from .*/first, .* multilink relocate --tracking-uri"):
        connect(uri)
    was, paths = relocate(uri)
    assert was == str(tmp_path / "first") and paths >= 6
    client = connect(uri)
    loaded = load("models:/linker/1", client)
    assert loaded.version is not None and loaded.version.tags["lake"] == f"{tmp_path}/{name}/lake"
    assert loaded.version.tags["elsewhere"] == "/other/lake"
    note = client.download_artifacts(str(loaded.version.run_id), "note.txt", str(tmp_path))
    assert Path(note).read_text() == "kept"
    with pytest.raises(UsageError, match="was not moved"):
        relocate(uri)


def test_a_copy_reads_its_own_files(tmp_path: Path, template: Path, trained: Path) -> None:
    first = write_workspace(tmp_path / "first", template, trained)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    connect(f"sqlite:///{tmp_path}/link/mlflow.db")  # the same folder by another name
    with pytest.raises(UsageError, match="was moved or copied"):
        connect(f"sqlite:///{tmp_path}/second/mlflow.db")
    relocate(f"sqlite:///{tmp_path}/second/mlflow.db")
    for path in (tmp_path / "first" / "mlartifacts").rglob("weights.pt"):
        path.unlink()
    assert load("models:/linker/1", connect(f"sqlite:///{tmp_path}/second/mlflow.db")).version is not None
    with pytest.raises(Exception, match="expected the files that were saved"):
        load("models:/linker/1", connect(first))


def test_other_stores_have_no_paths() -> None:
    with pytest.raises(UsageError, match="expected a database in a file"):
        relocate("http://127.0.0.1:5000")
