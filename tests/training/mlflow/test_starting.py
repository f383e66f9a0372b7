from dataclasses import replace
from functools import partial
from pathlib import Path

import mlflow
import pytest
import torch
from registries import Register

from schemas.errors import ConfigError, NotFoundError, UsageError
from schemas.lake import Lake
from training.config import LoopConfig, TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.run import fetch_start, has_start, runs_folder
from training.loop.setup import new_model
from training.mlflow import tracked_training
from training.mlflow.runs import TrackedRun
from training.mlflow.tracked_training import keep_start, pin_start
from training.model import LinkModel


def starting_from(*models: str) -> TrainConfig:
    return TrainConfig(training=LoopConfig(start_from=models))


def test_an_alias_is_pinned_to_its_version(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path
) -> None:
    for model in (trained, untrained):
        register_model(model)
    client.set_registered_model_alias("linker", "champion", "1")
    given = ("models:/linker@champion", "caption=models:/linker@champion", "body=models:/linker/2", "lead=/a/folder")
    pinned = pin_start(starting_from(*given), client).training.start_from
    assert pinned == ("models:/linker/1", "caption=models:/linker/1", "body=models:/linker/2", "lead=/a/folder")
    assert pin_start(starting_from(*pinned), client).training.start_from == pinned


def test_a_resumed_run_keeps_its_settings(
    client: mlflow.MlflowClient, registry_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[TrainConfig] = []

    def killed(config: TrainConfig, run: TrackedRun, **_: object) -> None:
        launched.append(config)
        run.log_epoch({"epoch": len(launched), "train_loss": 0.5})
        raise KeyboardInterrupt

    monkeypatch.setattr(tracked_training, "_launch", killed)
    go = partial(tracked_training.run_train, lake=registry_lake.root.uri, tracking=client.tracking_uri, say=print)
    with pytest.raises(KeyboardInterrupt):
        go(dataset="synthetic", recipe="tiny", overrides=["training.epochs=10"])
    experiment = client.get_experiment_by_name("multilink-synthetic")
    (run,) = client.search_runs([experiment.experiment_id])
    with pytest.raises(UsageError, match="expected no --dataset, --recipe and --set"):
        go(resume=run.info.run_id, overrides=["training.epochs=20"])
    with pytest.raises(KeyboardInterrupt):
        go(resume=run.info.run_id)
    first, resumed = launched
    assert first == resumed and first.training.epochs == 10
    assert client.get_run(run.info.run_id).info.status == "KILLED"


def test_what_the_registry_lacks_is_said(client: mlflow.MlflowClient, registered: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"training\.start_from = 'models:/linker@best': .*linker"):
        pin_start(starting_from("caption=models:/linker@best"), client)
    with pytest.raises(NotFoundError, match=r"training\.start_from runs:/0{32}/model: no model of multilink there"):
        keep_start(starting_from(f"runs:/{'0' * 32}/model"), runs_folder(Lake.at(str(tmp_path))).child("run"))


def test_workers_start_from_a_copy_in_the_runs_folder(
    client: mlflow.MlflowClient,
    registered: str,
    trained: Path,
    registry_lake: Lake,
) -> None:
    giver = LinkModel.load(trained)
    config = replace(giver.card.config, training=LoopConfig(start_from=("models:/linker@1",)))
    config = pin_start(config, client)
    run = runs_folder(registry_lake).child("starts")
    assert not has_start(run, "models:/linker/1")
    keep_start(config, run)
    assert has_start(run, "models:/linker/1")
    data = load_training_data(registry_lake, "synthetic", config.reading)
    started = new_model(config, data, Context(find_model=partial(fetch_start, run)))
    assert all(torch.equal(value, giver.state_dict()[name]) for name, value in started.state_dict().items())
    assert started.card.config.training.start_from == ("models:/linker/1",)
    with pytest.raises(ConfigError, match=r"training\.start_from = 'models:/linker/1': .*found no model\.json"):
        new_model(config, data, Context(find_model=partial(fetch_start, run.child("other"))))
