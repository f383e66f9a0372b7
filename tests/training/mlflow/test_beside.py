"""Baselines beside a model on the same documents, or why not; as commands; what a training leaves to read."""

import json
from dataclasses import replace
from pathlib import Path

import lakes
import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest

from orchestration.cli import run
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import NotFoundError, UsageError
from training.config import objective
from training.data.lake import Columns, read_split
from training.data.ragged import unit_rows
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.decoys import count_decoys
from training.evaluation.evaluate import STANDARD_CONFIG, EvaluateConfig, EvaluationReport
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.metrics.calibration import read_calibration
from training.metrics.intervals import Score
from training.metrics.links import score_documents
from training.mlflow.registering import register
from training.mlflow.registry import find_version, logged_model
from training.mlflow.tracked_training import TrainSummary
from training.model import LinkModel
from training.report.evaluation import outcome_lines
from training.report.examples import example_groups
from training.report.sections import TO, absent_baselines
from training.workflows.evaluate import EvaluateSummary, judged_split, run_evaluate, run_report, run_training_report
from training.workflows.studies import run_compare, run_transfer


def evaluated(
    client: mlflow.MlflowClient, lake: Lake, model: str, config: EvaluateConfig | None = None
) -> EvaluateSummary:
    return run_evaluate(
        model=model,
        dataset="synthetic",
        lake=lake.root.uri,
        tracking=client.tracking_uri,
        config=config or EvaluateConfig(),
        say=print,
    )


def table(report: EvaluationReport | None) -> dict[tuple[str, str], object]:
    return {(row.measure, row.metric): row for row in report.rows if not row.group}


def test_nostruct_of_the_same_version_stands_beside_a_model(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    trained: Path,
    untrained: Path,
    tmp_path: Path,
) -> None:
    alone = evaluated(client, registry_lake, "models:/linker/1")
    assert alone.to_json()["baselines"] == {} and absent_baselines(alone.rows) == {
        "NoStruct": "no model multilink-synthetic-nostruct of this data set version is registered",
        "nearest sentence": "synthetic@v1, split test has no positions of images among the sentences (after_sentence)",
        "frozen joint embeddings": "no two columns are named as of one joint model (sentence_features, image_features)",
        "object detection": "the data set has no classes of its images; build it with a classifier",
        "class names": "the data set has no vectors of class names; build it with "
        "features.images=...,efficientnet-lite0-names and features.sentences=use-multilingual",
    }
    model = LinkModel.load(untrained)
    model.card = replace(model.card, config=replace(model.card.config, objective=objective("nostruct")))
    model.save(tmp_path / "nostruct")
    for version in ("v0", "v1"):
        run = client.create_run(client.get_experiment_by_name("multilink-synthetic").experiment_id)
        tags = {"dataset": "synthetic", "dataset_version": version, "lake": registry_lake.root.uri}
        folder = {"v0": trained, "v1": tmp_path / "nostruct"}[version]
        register(client, folder, name="multilink-synthetic-nostruct", run_id=run.info.run_id, tags=tags)

    summary = evaluated(client, registry_lake, "models:/linker/1")
    expected = evaluate_model(LinkModel.load(untrained), registry_lake, "synthetic").mean
    found = summary.means("nostruct")
    assert found == {m: replace(s, measure="nostruct", note="version 2") for m, s in expected.items()}
    assert found["auc"].value != summary.means()["auc"].value
    row = table(summary.report)["nostruct", "auc"]
    assert (row.value, row.low, row.n) == (expected["auc"].value, expected["auc"].low, len(summary.evaluation.scores))
    assert table(summary.report)["object-detection", "absent"].note.startswith("the data set has no classes of its")
    assert [line.split()[0] for line in summary.lines()[1:4]] == ["model", "NoStruct", "random"]
    page = run_report(summary, lake=registry_lake.root.uri, directory=tmp_path / "report", tracking=client.tracking_uri)
    text = page.read_text(encoding="utf-8")
    assert text.index("NoStruct<") < text.index("random<") and f"{expected['auc'].value:.1f}" in text
    assert "<b>object detection</b>, because the data set has no classes of its images" in text

    itself = evaluated(client, registry_lake, "models:/multilink-synthetic-nostruct/2")
    assert absent_baselines(itself.rows)["NoStruct"] == "it is the model that is judged"


def test_the_nearest_sentence_stands_beside_a_model(client: mlflow.MlflowClient, trained: Path, tmp_path: Path) -> None:
    made = {
        split: lakes.with_places(lakes.make_documents(split, 20, lakes.World())) for split in (Split.VAL, Split.TEST)
    }
    lake = lakes.write_lake(tmp_path / "lake", made)
    summary = evaluated(client, lake, str(trained), EvaluateConfig(position=True))
    row = table(summary.report)["nearest-sentence", "auc"]
    assert row.low is not None and row.low <= row.value <= row.high  # type: ignore[attr-defined]
    alone = evaluate_baseline(Baseline.NEAREST_SENTENCE, lake, "synthetic", Split.TEST, config=STANDARD_CONFIG)
    assert row.value == alone.evaluation.mean["auc"].value  # type: ignore[attr-defined]
    assert row.note == alone.note and "upper bound by construction" in row.note  # type: ignore[attr-defined]
    lines = summary.lines()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["model", "the model with position", "nearest sentence"]
    assert any(line.startswith("nearest sentence: the sentence next to") for line in lines)
    page = run_report(summary, lake=lake.root.uri, directory=tmp_path / "report", tracking=client.tracking_uri)
    text = page.read_text(encoding="utf-8")
    assert text.count("an upper bound by construction") == 2 and "Position as a feature" in text

    found = run_compare(
        models=["nearest-sentence", str(trained)],
        dataset="synthetic",
        lake=lake.root.uri,
        tracking=client.tracking_uri,
        say=print,
    )
    assert [result.name for result in found.models] == ["nearest-sentence", str(trained)]
    difference = found.models[1].differences["auc"]
    own, theirs = (found.models[number].means["auc"].value for number in (1, 0))
    assert difference.mean == pytest.approx(own - theirs)  # type: ignore[operator]
    assert difference.mean <= 0 and difference.low < difference.mean < difference.high
    with pytest.raises(UsageError, match="found baselines alone"):
        run_compare(models=["class-names", "nearest-sentence"], dataset="synthetic", lake=lake.root.uri, say=print)


def test_named_columns_are_scored_as_they_are(client: mlflow.MlflowClient, trained: Path, tmp_path: Path) -> None:
    model = LinkModel.load(trained)
    world = lakes.World(text_dimensions=12, image_dimensions=12)
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(world, test=20), world=world)
    model.card = replace(model.card, data=replace(model.card.data, image_dimensions=12))
    LinkModel(model.card, None).save(tmp_path / "fitting")
    config = EvaluateConfig(sentence_features="text-test", image_features="image-test")
    found = evaluated(client, lake, str(tmp_path / "fitting"), config).means("joint-embeddings")["auc"]
    assert found.note == "zero-shot, text-test and image-test"
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_split(manifest, folder, "test", Columns(images="auto", sentences="text-test", links=True))
    matrices = [
        unit_rows(each.sentence_vectors, np.float64) @ unit_rows(each.image_vectors, np.float64).T
        for each in lakes.given_documents(documents)
    ]
    assert found.value == pytest.approx(score_documents(matrices, documents.links).means()["auc"].value, abs=1e-3)
    missing = evaluated(client, lake, str(tmp_path / "fitting"), replace(config, image_features="clip"))
    assert (
        "'clip': clip is not in the data set; it has image-test; rebuild with features.images=clip"
        in absent_baselines(missing.rows)["frozen joint embeddings"]
    )


def test_models_are_judged_on_every_data_set(
    client: mlflow.MlflowClient, registry_lake: Lake, trained: Path, untrained: Path
) -> None:
    lines: list[str] = []
    cells = run_transfer(
        models=[str(trained), str(untrained)],
        datasets=["synthetic@v1", "synthetic"],
        lake=registry_lake.root.uri,
        tracking=client.tracking_uri,
        say=lines.append,
    )
    assert [(cell.model, cell.dataset) for cell in cells] == [
        (str(model), "synthetic@v1") for model in (trained, trained, untrained, untrained)
    ]
    expected = evaluate_model(LinkModel.load(trained), registry_lake, "synthetic").mean
    assert cells[0].means == expected and not cells[0].is_transfer and len(lines) == 4
    with pytest.raises(NotFoundError, match="nowhere"):
        run_transfer(
            models=[str(trained)],
            datasets=["nowhere"],
            lake=registry_lake.root.uri,
            tracking=client.tracking_uri,
            say=print,
        )


def test_a_data_set_without_the_models_columns_is_a_cell_with_its_reason(
    client: mlflow.MlflowClient, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = lakes.World(text_dimensions=12, image_dimensions=9)
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(world, test=4), world=world).root.uri
    arguments = ["transfer", "--lake", lake, "--models", str(trained), "--datasets", "synthetic"]
    assert run([*arguments, "--tracking-uri", client.tracking_uri, "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    (cell,) = json.loads(printed[-1])["cells"]
    assert cell["problem"] and "auc" not in cell
    assert any(line.startswith(f"- {trained} on synthetic@v1: ") for line in printed)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--scores", __file__, "--set", "samples=3"], "evaluate --scores: expected no --dataset, --set"),
        (["--report", "report"], "evaluate: expected --model as well"),
        (["--model", "x", "--set", "word_vector=x"], "unknown key 'word_vector'"),
    ],
)
def test_what_evaluate_cannot_do_is_said(
    options: list[str], problem: str, registry_lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "--lake", registry_lake.root.uri, "--dataset", "synthetic", *options]) == 2
    assert problem in capsys.readouterr().err


def test_a_calibration_on_another_data_set_is_a_file_that_links_take(
    client: mlflow.MlflowClient, registry_lake: Lake, trained: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, store = tmp_path / "people.json", ["--tracking-uri", client.tracking_uri]
    where = ["--model", str(trained), "--dataset", "synthetic", "--lake", registry_lake.root.uri, *store]
    assert run(["evaluate", *where, "--no-baselines", "--calibration", str(path)]) == 0
    written = read_calibration(path)
    assert written == judge_model(LinkModel.load(trained), registry_lake, "synthetic").calibration
    links = ["--output", str(tmp_path / "links"), "--calibration", str(path), "--split", "test"]
    assert run(["link", *where, *links]) == 0
    part = next((tmp_path / "links").rglob("links/**/*.parquet"))
    assert None not in pq.read_table(part, columns=["probability"])["probability"].to_pylist()

    without = lakes.splits(test=4)  # no validation split
    lake = lakes.write_lake(tmp_path / "lake", without).root.uri
    arguments = ["--model", str(trained), "--dataset", "synthetic", "--lake", lake, *store, "--calibration", str(path)]
    assert run(["evaluate", *arguments, "--no-baselines"]) == 2
    assert "--calibration: synthetic@v1 has none: " in capsys.readouterr().err


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
    *_, link, evaluate = found.outcome(registry_lake.root.uri, "http://other")
    assert link.split()[:4] == ["multilink", "link", "--model", "models:/linker/1"]
    about = f"--dataset synthetic@v1 --lake {registry_lake.root.uri} --report report --tracking-uri http://other"
    assert evaluate.split()[4:] == about.split() and link.split()[-2:] == about.split()[-2:]
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
    first, *_ = found.outcome("lake", None)
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


def test_examples_of_an_evaluation_show_the_concepts_of_their_images(trained: Path, tmp_path: Path) -> None:
    lake: Lake = lakes.write_lake(tmp_path / "lake", lakes.splits(test=8), is_rich=True)
    manifest, folder = read_manifest(lake, "synthetic")
    evaluation = judge_model(LinkModel.load(trained), lake, "synthetic").evaluation
    documents = read_split(manifest, folder, Split.TEST, Columns(regions="boxes-test"))
    regions = documents.regions
    groups = example_groups(evaluation, manifest, folder, Split.TEST, regions="boxes-test")
    assert sum(map(len, groups.values())) > 2
    for shown in (each for group in groups.values() for each in group):
        row = documents.ids.index(shown.id)
        for image, found in zip(documents.image_rows[documents.images.rows(row)], shown.concepts, strict=True):
            assert found == tuple(dict.fromkeys(regions.labels[regions.images.rows(image)]))[:3] != ()
    without = example_groups(evaluation, manifest, folder, Split.TEST)
    assert not any(each.concepts for group in without.values() for each in group)
