"""Baselines beside a model: on the same documents, where the data set carries what they need; a reason where not."""

from dataclasses import replace
from pathlib import Path

import lakes
import mlflow
import numpy as np
import pytest

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import objective
from training.data.lake import Columns, read_split
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.evaluate import STANDARD_CONFIG, EvaluateConfig, EvaluationReport
from training.evaluation.models import evaluate_model
from training.metrics.links import score_documents
from training.mlflow.registering import register
from training.model import LinkModel
from training.report.sections import absent_baselines
from training.workflows.evaluate import EvaluateSummary, run_evaluate, run_report
from training.workflows.studies import run_compare


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


def absent(summary: EvaluateSummary) -> dict[str, str]:
    return absent_baselines(summary.rows)


def save_as_nostruct(source: Path, target: Path) -> Path:
    model = LinkModel.load(source)
    model.card = replace(model.card, config=replace(model.card.config, objective=objective("nostruct")))
    model.save(target)
    return target


def test_nostruct_of_the_same_version_stands_beside_a_model(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    trained: Path,
    untrained: Path,
    tmp_path: Path,
) -> None:
    alone = evaluated(client, registry_lake, "models:/linker/1")
    assert alone.to_json()["baselines"] == {} and absent(alone) == {
        "NoStruct": "no model multilink-synthetic-nostruct of this data set version is registered",
        "nearest sentence": "synthetic@v1, split test has no positions of images among the sentences (after_sentence)",
        "frozen joint embeddings": "no two columns are named as of one joint model (sentence_features, image_features)",
        "object detection": "the data set has no classes of its images; build it with a classifier",
        "class names": "the data set has no vectors of class names; build it with "
        "features.images=...,efficientnet-lite0-names and features.sentences=use-multilingual",
    }
    nostruct = save_as_nostruct(untrained, tmp_path / "nostruct")
    for version in ("v0", "v1"):
        run = client.create_run(client.get_experiment_by_name("multilink-synthetic").experiment_id)
        tags = {"dataset": "synthetic", "dataset_version": version, "lake": registry_lake.root.uri}
        folder = trained if version == "v0" else nostruct
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
    assert absent(itself)["NoStruct"] == "it is the model that is judged"


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
    fitting = LinkModel(model.card, None)
    fitting.save(tmp_path / "fitting")
    config = EvaluateConfig(sentence_features="text-test", image_features="image-test")
    summary = evaluated(client, lake, str(tmp_path / "fitting"), config)
    found = summary.means("joint-embeddings")["auc"]
    assert found.note == "zero-shot, text-test and image-test"
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_split(manifest, folder, "test", Columns(images="auto", sentences="text-test", links=True))
    texts, bank = (
        rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
        for rows in (documents.sentence_vectors, documents.image_bank)
    )
    matrices = [
        texts[slice(*documents.sentences.offsets[d : d + 2])]
        @ bank[documents.image_rows[slice(*documents.images.offsets[d : d + 2])]].T
        for d in range(20)
    ]
    assert found.value == pytest.approx(score_documents(matrices, documents.links).means()["auc"].value, abs=1e-3)
    missing = evaluated(client, lake, str(tmp_path / "fitting"), replace(config, image_features="clip"))
    assert (
        "'clip': clip is not in the data set; it has image-test; rebuild with features.images=clip"
        in absent(missing)["frozen joint embeddings"]
    )
