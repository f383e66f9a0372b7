"""What a training run leaves to read: table, page and a card with scores; of which split, and when there is none."""

from dataclasses import replace
from pathlib import Path

import lakes
import mlflow
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.evaluation.decoys import count_decoys
from training.metrics.scores import Score
from training.mlflow.registry import find_version, logged_model
from training.mlflow.tracked_training import TrainSummary
from training.model import LinkModel
from training.report.evaluation import outcome_lines
from training.report.sections import TO
from training.workflows.evaluate import judged_split, run_training_report


def summary_of(client: mlflow.MlflowClient) -> TrainSummary:
    return TrainSummary(version=find_version(client, "linker", "1"), tracking_uri=client.tracking_uri)


def test_table_page_and_scores_are_with_the_version_and_its_run(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    tmp_path: Path,
) -> None:
    version = find_version(client, "linker", "1")
    card = Path(mlflow.artifacts.download_artifacts(logged_model(client, version).artifact_location)) / "model_card.md"
    assert "Not evaluated yet" in card.read_text(encoding="utf-8")
    found = run_training_report(
        summary_of(client), lake=registry_lake.root.uri, tracking=client.tracking_uri, say=print
    )
    assert found is not None and found.values["split"] == "test"
    *_, link, evaluate = found.outcome(registry_lake.root.uri)
    assert link.split()[:4] == ["multilink", "link", "--model", "models:/linker/1"]
    assert evaluate.split()[4:] == ["--dataset", "synthetic@v1", "--lake", registry_lake.root.uri, "--report", "report"]
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


def test_without_a_known_link_the_report_estimates_how_many_are_false(
    client: mlflow.MlflowClient, registered: str, trained: Path, tmp_path: Path
) -> None:
    unknown = lakes.without_links(lakes.make_documents(Split.TRAIN, 60, lakes.World()))
    lake = lakes.write_lake(tmp_path / "lake", {Split.TRAIN: unknown}, shards=1)  # pairs are mixed within a shard
    arguments = {"lake": lake.root.uri, "tracking": client.tracking_uri}
    found = run_training_report(summary_of(client), **arguments, say=print)
    assert found is not None and found.values["split"] == "train" and not found.means()
    (decoys,) = [row for row in found.rows if row.measure == "decoys"]
    version = read_manifest(lake, "synthetic")
    pairs = count_decoys(LinkModel.load(trained), *version, ["train"])
    assert (decoys.value, decoys.n) == (pytest.approx(100 * pairs.broken / pairs.pairs), pairs.pairs)
    first, *_ = found.outcome("lake")
    assert first.startswith("synthetic@v1 has no known links, so the model has no scores; about ")
    assert f"an estimate from {decoys.n} swapped pairs" in first and "at least" not in first
    page = Path(client.download_artifacts(str(summary_of(client).version.run_id), "report/index.html", str(tmp_path)))
    assert "How many links are false, by an estimate" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "low", "words"),
    [
        (91.0, 88.0, "good; random has 50"),
        (75.0, 71.0, "fair, look at the links before you rely on them; random has 50"),
        (62.0, 57.0, "weak; random has 50"),
        (56.0, 51.0, "not shown to be better than random links; more documents help most"),
    ],
)
def test_a_training_ends_with_whether_the_model_is_good(value: float, low: float, words: str) -> None:
    rows = [Score("auc", value, low, value + 3, 34, measure="links"), Score("auc", 50.0, 46.0, 54.0, measure="random")]
    first, *table = outcome_lines(rows, dataset="diy@1")
    assert first == f"AUC {value:.1f} ({low:.1f}–{value + 3:.1f}) on 34 documents of diy@1: {words}".replace("–", TO)
    assert len(table) == 3
    beside = [*rows, Score("auc", 74.0, 70.0, 79.0, measure="class-names")]
    assert (outcome_lines(beside, dataset="diy@1")[1].startswith("the model class-names")) == (value < 74)


@pytest.mark.parametrize(
    ("known", "expected"), [(("train", "val", "test"), "test"), (("train", "val"), "val"), (("train",), None)]
)
def test_the_test_split_is_judged_else_validation(
    registry_lake: Lake, known: tuple[str, ...], expected: str | None
) -> None:
    manifest: Manifest = read_manifest(registry_lake, "synthetic")[0]
    splits = {name: row if name in known else replace(row, links=0) for name, row in manifest.splits.items()}
    assert judged_split(replace(manifest, splits=splits)) == expected
