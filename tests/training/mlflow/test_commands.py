"""The plain command functions over a real registry; `run_train`, which needs Ray, is tried in `test_launch.py`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.evaluation.models import evaluate_model
from training.mlflow.registry import find_version
from training.model import LinkModel
from training.workflows.evaluate import run_evaluate

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
