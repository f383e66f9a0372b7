"""A step is a function with typed settings: those of the settings file, in whatever process it is done."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import BeamSettings, DatasetSettings, LinksSettings, RaySettings, RayWhere, Settings
from orchestration.plan import Plan
from orchestration.steps import Step, as_json, from_json, link
from schemas.messages import ConfigError

DIY = DatasetSettings(name="diy", settings=("dedupe.radius=2",), train_recipe="tiny")
CLUSTER = Settings(
    lake="s3://lake",
    tracking_uri="http://m:5000",
    datasets=(DIY,),
    beam=BeamSettings(runner="flink", options=("--x=1",)),
    ray=RaySettings(where=RayWhere.RAY_JOB, workers=2, address="http://head:8265"),
    links=LinksSettings(precision=0.9),
)
STORES = {"lake": "s3://lake", "tracking_uri": "http://m:5000"}
PLAN = Plan(settings=CLUSTER)
JUDGED = {**STORES, "dataset": "diy@v1", "workers": 1}
PROMOTED = {**STORES, "model": "m", "version": "3", "workers": 1}
LINKS = {"precision": 0.9, "fit": True, "calibration": ""}
ASKED: dict[str, tuple[Step, dict[str, Any]]] = {
    "build": (
        PLAN.build(DIY, ["source.dump=x"]),
        {
            "dataset": "diy",
            "recipe": "",
            "settings": ["source.dump=x", "dedupe.radius=2"],
            "lake": "s3://lake",
            "runner": "flink",
            "workers": 1,
            "beam_options": ["--x=1"],
        },
    ),
    "train": (
        PLAN.train(DIY, "v1", "nostruct"),
        {
            **STORES,
            "dataset": "diy@v1",
            "recipe": "tiny",
            "settings": ["objective.name=nostruct"],
            "reuse": True,
            "with_report": False,
            "workers": 1,
        },
    ),
    "evaluate": (
        PLAN.evaluate("models:/m/1", "diy@v1", report="r"),
        {**JUDGED, "model": "models:/m/1", "report": "r", "needs_links": True, "with_baselines": True},
    ),
    "compare": (
        PLAN.compare("models:/b/1", "models:/a/1", "diy@v1"),
        {**JUDGED, "models": ["models:/a/1", "models:/b/1"], "split": "val"},
    ),
    "promote": (PLAN.promote("m", "3", policy="/p.toml"), {**PROMOTED, "policy": "/p.toml"}),
    "link": (
        PLAN.link("m", "diy@v1", "1"),
        {
            **STORES,
            "model": "models:/m/1",
            "dataset": "diy@v1",
            "output": "s3://lake/links/diy/v1/m-1",
            "links": LINKS,
            "workers": 2,
        },
    ),
    "index": (
        PLAN.index("m", "diy@v1", "1"),
        {**STORES, "model": "models:/m/1", "dataset": "diy@v1", "workers": 2},
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_step_is_done_as_the_settings_say_and_is_the_same_in_another_process(name: str) -> None:
    step, settings = ASKED[name]
    values = json.loads(json.dumps(as_json(step)))
    assert values == {"step": name, "settings": settings}
    again = from_json(values)
    assert again.func is step.func and again.keywords == step.keywords


def test_what_is_judged_here_has_the_workers_of_this_machine() -> None:
    here = Plan(settings=replace(CLUSTER, ray=RaySettings(workers=3)))
    steps = [
        here.evaluate("models:/m/1", "diy@v1", report="r"),
        here.compare("models:/b/1", "models:/a/1", "diy@v1"),
        here.promote("m", "3"),
    ]
    assert [each.keywords["workers"] for each in steps] == [3, 3, 3]


@pytest.mark.parametrize(
    ("objective", "settings", "workers"),
    [("nostruct", (), 1), ("nostruct", ("training.batches_per_step=4",), 4), ("closed-form", (), 8)],
)
def test_as_many_of_a_clusters_workers_train_as_a_step_has_batches(
    objective: str, settings: tuple[str, ...], workers: int
) -> None:
    """One more would be refused (`TrainConfig.check_workers`), and every scheduled training with it."""
    diy = replace(DIY, train_settings=settings)
    plan = Plan(settings=replace(CLUSTER, ray=replace(CLUSTER.ray, workers=8)))
    assert plan.train(diy, "v1", objective).keywords["workers"] == workers
    diy.config_of(objective).check_workers(workers)


def test_a_store_with_a_password_is_in_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    secret = "postgresql://ann:secret@db/mlflow"
    step = Plan(settings=replace(CLUSTER, tracking_uri=secret)).train(DIY, "v1", "nostruct")
    assert step.keywords["tracking_uri"] is None and "secret" not in json.dumps(as_json(step))
    assert os.environ["MLFLOW_TRACKING_URI"] == secret


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dataste": "diy"}, "did you mean 'dataset'"),
        ({"workers": "many"}, "workers = 'many'"),
        ({"links": {"precision": 9}}, "precision = 9"),
    ],
)
def test_settings_of_another_type_are_a_mistake(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_json({"step": link.__name__, "settings": settings})


def test_without_a_model_there_is_no_champion(tmp_path: Path, empty_store: str) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), tracking_uri=empty_store)
    assert Plan(settings=settings).champion("multilink-diy-nostruct") is None
