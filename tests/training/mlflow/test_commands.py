"""The plain command functions over a real registry; `run_train`, which needs Ray, is tried in `test_launch.py`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.data.documents import GivenDocument
from training.evaluation.models import evaluate_model
from training.mlflow.loading import load
from training.mlflow.registry import find_version
from training.model import LinkModel
from training.workflows.evaluate import run_evaluate, run_evaluate_scores
from training.workflows.link import run_link

Register = Callable[[Path], str]


def test_evaluate_gives_intervals_and_logs_them_in_the_models_run(
    client: mlflow.MlflowClient, register_model: Register, registry_lake: Lake, trained: Path
) -> None:
    register_model(trained)
    summary = run_evaluate(
        model="models:/linker@challenger",
        dataset="synthetic",
        lake=registry_lake.root.uri,
        tracking=client.tracking_uri,
        say=print,
    )
    values = json.loads(json.dumps(summary.to_json()))
    assert values["model"] == "models:/linker/1" and values["dataset"] == "synthetic@v1"
    assert values["documents"] + sum(values["left_out"].values()) == 30
    for name in ("auc", "precision_at_1", "precision_at_5"):
        assert 0 <= values[name]["low"] <= values[name]["mean"] <= values[name]["high"] <= 100
    assert values["auc"]["low"] > values["random"]["auc"]["high"]
    run = client.get_run(str(find_version(client, "linker", "1").run_id))
    assert run.data.metrics["test_auc"] == values["auc"]["mean"]


def test_mistakes_of_evaluate(client: mlflow.MlflowClient, registry_lake: Lake, trained: Path) -> None:
    for model, dataset, split, message in (
        ("models:/linker/1", "synthetic", "test", "no model 'linker'"),
        (str(trained), "other", "test", "no data set 'other'"),
        (str(trained), "synthetic", "dev", "no split 'dev'"),
    ):
        with pytest.raises(NotFoundError, match=message):
            run_evaluate(
                model=model,
                dataset=dataset,
                split=split,
                lake=registry_lake.root.uri,
                tracking=client.tracking_uri,
                say=print,
            )


def test_a_data_set_without_the_models_features(registry_lake: Lake, trained: Path) -> None:
    model = LinkModel.load(trained)
    model.card = replace(model.card, data=replace(model.card.data, image_features="resnet50"))
    with pytest.raises(UsageError, match=r"lacks features that the model reads \(resnet50 and text-test\).*build"):
        evaluate_model(model, registry_lake, "synthetic")


def test_a_split_whose_links_nobody_knows(lakes: ModuleType, tmp_path: Path, trained: Path) -> None:
    made = lakes.without_links(lakes.make_documents(Split.TEST, 3, lakes.World()))
    lake = lakes.write_lake(str(tmp_path / "lake"), {Split.TEST: made})
    with pytest.raises(UsageError, match="3 links unknown"):
        evaluate_model(LinkModel.load(trained), lake, "synthetic")


def test_scores_made_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text('{"id": "a", "scores": [[0.9, 0.1]], "links": [[0, 0]]}\n')
    values = run_evaluate_scores(path).to_json()
    assert values["auc"]["mean"] == values["auc"]["high"] == 100.0
    assert values["auc"]["low"] == pytest.approx(2.5)  # of one document little is known
    assert values["documents"] == 1 and "model" not in values


def test_link_writes_the_best_assignment_of_each_document(
    client: mlflow.MlflowClient, trained: Path, tmp_path: Path
) -> None:
    loaded = load(str(trained), client)
    numbers = np.random.default_rng(0)
    documents = [
        GivenDocument(
            id=f"d{place}",
            texts=["text"] * n,
            sentence_vectors=numbers.normal(size=(n, 12)),
            image_vectors=numbers.normal(size=(m, 16)),
        )
        for place, (n, m) in enumerate([(4, 2), (0, 3), (3, 3)])
    ]
    summary = run_link(loaded=loaded, documents=documents, output=tmp_path / "links.parquet", say=print)
    rows = pq.read_table(tmp_path / "links.parquet").to_pylist()
    assert summary.documents == 3 and summary.links == len(rows) > 0
    assert {row["document"] for row in rows} <= {"d0", "d2"}
    assert {row["model"] for row in rows} == {str(trained)}
    matrix = loaded.model.similarities(loaded.model.read(documents[:1]))[0]
    for row in rows:
        if row["document"] == "d0":
            assert row["similarity"] == pytest.approx(float(matrix[row["sentence"], row["image"]]), abs=1e-6)
