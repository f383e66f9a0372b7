"""What a training run leaves to read: table, page and a card with scores; of which split, and when there is none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import mlflow
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.mlflow.registry import find_version, logged_model
from training.mlflow.tracked_training import TrainSummary
from training.workflows.report import judged_split, run_training_report

Register = Callable[[Path], str]


def summary_of(client: mlflow.MlflowClient, dataset_version: str = "v1") -> TrainSummary:
    return TrainSummary(
        run_id=str(find_version(client, "linker", "1").run_id),
        model="linker",
        version="1",
        epochs=4,
        best_epoch=4,
        best_validation_loss=None,
        dataset="synthetic",
        dataset_version=dataset_version,
        recipe="tiny",
        tracking_uri=client.tracking_uri,
    )


def test_table_page_and_scores_are_with_the_version_and_its_run(
    client: mlflow.MlflowClient,
    lakes: ModuleType,
    register_model: Register,
    registry_lake: Lake,
    trained: Path,
    tmp_path: Path,
) -> None:
    register_model(trained)
    version = find_version(client, "linker", "1")
    card = Path(mlflow.artifacts.download_artifacts(logged_model(client, version).artifact_location)) / "model_card.md"
    assert "Not evaluated yet" in card.read_text(encoding="utf-8")
    found = run_training_report(
        summary_of(client), lake=registry_lake.root.uri, tracking=client.tracking_uri, say=print
    )
    assert found is not None and found.values["split"] == "test"
    folder = Path(mlflow.artifacts.download_artifacts(logged_model(client, version).artifact_location))
    text = (folder / "model_card.md").read_text(encoding="utf-8")
    auc, random = found.means()["auc"], found.means("random")["auc"]
    assert f"| this model | auc | {auc.value:.1f} | {auc.low:.1f} to {auc.high:.1f} |" in text
    assert f"| random | auc | {random.value:.1f} |" in text and "Not evaluated yet" not in text
    assert found.report is not None and lakes.read_rows(folder / "report" / "evaluation.parquet") == found.report.rows
    logged = logged_model(client, version)
    metrics = {each.key: each for each in logged.metrics}
    assert metrics["test_auc"].value == auc.value and metrics["test_auc_low"].value == auc.low
    assert {(each.dataset_name, each.dataset_digest) for each in logged.metrics} == {("synthetic", "v1")}
    datasets = [{"dataset_name": "synthetic", "dataset_digest": "v1"}]
    (best,) = client.search_logged_models([logged.experiment_id], "metrics.test_auc > 0", datasets)
    assert best.model_id == logged.model_id
    for name in ("index.html", "evaluation.parquet"):
        kept = client.download_artifacts(str(version.run_id), f"report/{name}", str(tmp_path))
        assert Path(kept).read_bytes() == (folder / "report" / name).read_bytes()


def test_without_a_known_link_there_is_no_report_and_no_failure(
    client: mlflow.MlflowClient, register_model: Register, lakes: ModuleType, trained: Path, tmp_path: Path
) -> None:
    register_model(trained)
    unknown = lakes.without_links(lakes.make_documents(Split.TEST, 4, lakes.World()))
    lake = lakes.write_lake(str(tmp_path / "lake"), {Split.TEST: unknown})
    lines: list[str] = []
    arguments = {"lake": lake.root.uri, "tracking": client.tracking_uri}
    assert run_training_report(summary_of(client), **arguments, say=lines.append) is None
    assert lines == ["no report: no test or validation document of synthetic@v1 has known links"]


@pytest.mark.parametrize(
    ("known", "expected"), [(("train", "val", "test"), "test"), (("train", "val"), "val"), (("train",), None)]
)
def test_the_test_split_is_judged_else_validation(
    registry_lake: Lake, known: tuple[str, ...], expected: str | None
) -> None:
    manifest: Manifest = read_manifest(registry_lake, "synthetic")[0]
    splits = {name: row if name in known else replace(row, links=0) for name, row in manifest.splits.items()}
    assert judged_split(replace(manifest, splits=splits)) == expected
