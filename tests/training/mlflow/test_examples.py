"""What a model links where no link is known: its loss, the widest documents, their pictures and concepts."""

import json
import re
from pathlib import Path
from types import ModuleType

import mlflow
import numpy as np
import pytest

from orchestration.cli import run
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import LoopConfig, Select, TrainConfig
from training.data.lake import Columns, read_split
from training.data.loading import load_training_data
from training.evaluation.judge import judge_model
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.report.example_documents import example_groups
from training.similarity.assignment import predicted_pairs
from training.towers.vectors import LinearSettings, SentenceSettings

CONFIG = TrainConfig(
    recipe="tiny",
    dimensions=8,
    text=SentenceSettings(dropout=0.0),
    image=LinearSettings(dropout=0.0, standardise=True),
    training=LoopConfig(epochs=2, learning_rate=1e-2, select=Select.LAST),
)


def spread(rows: np.ndarray) -> float:
    units = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    return float(np.mean([np.sum((row - units.mean(axis=0)) ** 2) for row in units]))


def test_documents_without_links_are_chosen_by_spread_and_judged_by_loss(
    lakes: ModuleType, client: mlflow.MlflowClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {
        split: lakes.without_links(lakes.make_documents(split, count, lakes.World()))
        for split, count in ((Split.TRAIN, 30), (Split.VAL, 12))
    }
    lake: Lake = lakes.write_lake(str(tmp_path / "lake"), made)
    result = train(
        CONFIG, load_training_data(lake, "synthetic", CONFIG.reading), Context(), run_directory=tmp_path / "run"
    )
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_split(manifest, folder, Split.VAL, Columns(images="image-test", sentences="text-test"))
    assert documents.sentence_vectors is not None
    widths = {
        name: (
            spread(documents.image_bank[documents.image_rows[documents.images.rows(row)]]),
            spread(documents.sentence_vectors[documents.sentences.rows(row)]),
        )
        for row, name in enumerate(documents.ids)
    }
    expected = sorted(widths, key=lambda name: -sum(widths[name]))[:3]
    arguments = ["examples", "--model", str(result.model), "--dataset", "synthetic", "--lake", lake.root.uri]
    arguments += ["--split", "val", "--count", "3", "--report", str(tmp_path / "page"), "--json"]
    assert run([*arguments, "--tracking-uri", client.tracking_uri]) == 0
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["id"] for each in values["documents"]] == expected
    for each in values["documents"]:
        assert (each["image_spread"], each["text_spread"]) == pytest.approx(widths[each["id"]], abs=1e-3)
    assert values["loss"] == pytest.approx(result.history[-1]["validation_loss"], abs=1e-5)
    model = LinkModel.load(result.model)
    first = documents.ids.index(expected[0])
    matrix = model.similarities(documents)[first]
    assert {tuple(link[:2]) for link in values["documents"][0]["predicted"]} == {
        (int(row), int(column)) for row, column in zip(*predicted_pairs(matrix), strict=True)
    }
    page = " ".join(re.sub(r"<[^>]+>", " ", (tmp_path / "page" / "index.html").read_text(encoding="utf-8")).split())
    assert f"The loss of its objective is {values['loss']:.4f} there" in page and "truth unknown" in page
    arguments[arguments.index("val")] = "all"
    assert run([*arguments, "--tracking-uri", client.tracking_uri]) == 2
    assert "--split" in capsys.readouterr().err


def test_examples_of_an_evaluation_show_the_concepts_of_their_images(
    lakes: ModuleType, trained: Path, tmp_path: Path
) -> None:
    made = {Split.TEST: lakes.make_documents(Split.TEST, 8, lakes.World())}
    lake: Lake = lakes.write_lake(str(tmp_path / "lake"), made, is_rich=True)
    manifest, folder = read_manifest(lake, "synthetic")
    evaluation = judge_model(LinkModel.load(trained), lake, "synthetic").evaluation
    documents = read_split(manifest, folder, Split.TEST, Columns(regions="boxes-test"))
    regions = documents.regions
    assert regions is not None
    groups = example_groups(evaluation, manifest, folder, Split.TEST, regions="boxes-test")
    assert sum(map(len, groups.values())) > 2
    for shown in (each for group in groups.values() for each in group):
        row = documents.ids.index(shown.id)
        for image, found in zip(documents.image_rows[documents.images.rows(row)], shown.concepts, strict=True):
            assert found == tuple(dict.fromkeys(regions.labels[regions.images.rows(image)]))[:3] != ()
    without = example_groups(evaluation, manifest, folder, Split.TEST)
    assert not any(each.concepts for group in without.values() for each in group)
