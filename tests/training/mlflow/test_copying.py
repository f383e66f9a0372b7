from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Metric

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.mlflow.champions import record_of, taint
from training.mlflow.copying import copy_version
from training.mlflow.loading import load
from training.mlflow.promotion import promote
from training.mlflow.registering import attach
from training.mlflow.registry import find_version, logged_model, versions
from training.mlflow.runs import connect
from training.model import LinkModel, folder_digest
from training.promotions.record import CHANGED, JUDGED


@pytest.fixture
def production(template: Path, tmp_path: Path) -> str:
    """The URI of a second, empty registry."""
    path = tmp_path / "production" / "mlflow.db"
    path.parent.mkdir()
    path.write_bytes(template.read_bytes())
    return f"sqlite:///{path}"


def _files(client: mlflow.MlflowClient, version: str, folder: Path) -> Path:
    connect(client.tracking_uri)
    found = Path(mlflow.artifacts.download_artifacts(artifact_uri=f"models:/linker/{version}", dst_path=str(folder)))
    (found / "registered_model_meta").unlink()  # MLflow's note of the address
    return found


def test_what_was_trained_on_data_that_was_taken_out_goes_to_no_other_registry(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, production: str
) -> None:
    promote(client, "linker", "1", say=print)
    assert [each.version for each in taint(client, registry_lake, "synthetic", "v1", documents=1, images=2)] == ["1"]
    with pytest.raises(UsageError, match="tainted"):
        copy_version(client.tracking_uri, "linker", "champion", to=production, say=print)
    assert versions(connect(production)) == []


def test_a_copy_has_all_that_the_original_has(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    trained: Path,
    production: str,
    tmp_path: Path,
) -> None:
    original = find_version(client, "linker", "1")
    client.log_param(original.run_id, "training.epochs", "4")
    for step, value in enumerate((0.5, 0.25)):
        client.log_metric(original.run_id, "train_loss", value, step=step)
    report = tmp_path / "report"
    report.mkdir()
    (report / "index.html").write_text("<p>87 AUC</p>")
    client.log_artifacts(original.run_id, str(report), "report")
    attach(client, original, report / "index.html", "report")
    model_id = logged_model(client, original).model_id
    score = Metric("test_auc", 87.0, 1, 0, model_id=model_id, dataset_name="synthetic", dataset_digest="v1")
    client.log_batch(original.run_id, metrics=[score])
    promote(client, "linker", "1", say=print)

    copied, is_new = copy_version(client.tracking_uri, "linker", "champion", to=production, say=print)
    target = connect(production)
    arrived = find_version(target, "linker", "challenger")
    assert is_new and arrived == copied and copied.version == "1"
    source, digest = f"{client.tracking_uri} models:/linker/1", copied.tags["digest"]
    original = find_version(connect(client.tracking_uri), "linker", "1")
    extra = {"copied_from": source, "digest": digest, "chosen_from": "1"}
    assert arrived.tags == original.tags | extra
    assert record_of(target, "linker").about("1", CHANGED, JUDGED) == []

    folders = [_files(client, "1", tmp_path / "one"), _files(target, "1", tmp_path / "two")]
    assert folder_digest(folders[0]) == folder_digest(folders[1]) == digest
    assert (folders[1] / "report" / "index.html").read_text() == "<p>87 AUC</p>"
    run = target.get_run(arrived.run_id)
    assert run.info.status == "FINISHED" and run.data.params == {"training.epochs": "4"}
    history = target.get_metric_history(arrived.run_id, "train_loss")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 0.25)]
    assert {item.path for item in target.list_artifacts(arrived.run_id)} >= {"report"}
    (score,) = logged_model(target, arrived).metrics
    assert (score.key, score.value, score.run_id, score.dataset_name) == ("test_auc", 87.0, arrived.run_id, "synthetic")
    assert run.data.metrics["test_auc"] == 87.0
    weights = load("models:/linker/1", target).model.state_dict()
    for name, expected in LinkModel.load(trained).state_dict().items():
        assert weights[name].equal(expected)
    assert promote(target, "linker", "challenger", lake=registry_lake, say=print).decision.is_promoted

    again, is_new = copy_version(client.tracking_uri, "linker", "1", to=production, say=print)
    assert not is_new and again.version == "1"
    assert len(target.search_model_versions("name = 'linker'")) == 1


def test_a_copy_that_dies_on_the_way_is_no_version(
    client: mlflow.MlflowClient,
    registered: str,
    production: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def dies(*_: object) -> None:
        raise OSError("the store is full")

    monkeypatch.setattr(mlflow.MlflowClient, "log_model_artifacts", dies)
    with pytest.raises(OSError, match="the store is full"):
        copy_version(client.tracking_uri, "linker", "1", to=production, say=print)
    target = connect(production)
    assert not target.search_registered_models()
    experiment = target.get_experiment_by_name("multilink-synthetic")
    assert [run.info.status for run in target.search_runs([experiment.experiment_id])] == ["FAILED"]


def test_mistakes_are_named(client: mlflow.MlflowClient, registered: str, production: str) -> None:
    with pytest.raises(NotFoundError, match="no version '9'"):
        copy_version(client.tracking_uri, "linker", "9", to=production, say=print)
    with pytest.raises(UsageError, match="expected another registry"):
        copy_version(client.tracking_uri, "linker", "1", to=client.tracking_uri, say=print)
