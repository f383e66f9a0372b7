"""Training what was trained, stopped, or is being trained elsewhere; on a file and on a server, after a promotion."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import lakes
import mlflow
import pytest
import servers
import torch
from registries import Register

from orchestration.cli import run
from schemas.lake import Lake
from schemas.leases import HeldError, hold
from schemas.messages import ConfigError, NotFoundError, UsageError
from training.config import LoopConfig, TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.setup import new_model
from training.loop.trainer import fetch_start, has_start, runs_folder
from training.mlflow import tracked_training
from training.mlflow.champions import record_of, taint
from training.mlflow.promotion import promote
from training.mlflow.runs import TrackedRun, connect
from training.mlflow.tracked_training import TrainSummary, keep_start, pin_start, run_train
from training.model import LinkModel

SMALL = ("dimensions=16", "training.epochs=4", "training.learning_rate=0.01", "text.dropout=0", "image.dropout=0")


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Iterator[mlflow.MlflowClient]:
    with servers.mlflow_server(tmp_path, template) as (uri, _):
        yield connect(uri)


def trainer(client: mlflow.MlflowClient, lake: Lake, said: list[str]) -> partial[TrainSummary]:
    """Return what trains with `--reuse`."""
    return partial(
        run_train,
        lake=lake.root.uri,
        dataset="synthetic",
        recipe="tiny",
        overrides=SMALL,
        reuse=True,
        tracking=client.tracking_uri,
        say=said.append,
    )


@pytest.mark.trial
def test_a_model_is_reused_after_it_was_promoted(store: mlflow.MlflowClient, registry_lake: Lake) -> None:
    """A server gives the log of champions the run of the model: the log's entry was taken for the trained model."""
    said: list[str] = []
    train = trainer(store, registry_lake, said)
    first = train()
    assert not first.is_reused and first.best_validation_loss is not None
    assert promote(store, first.version.name, first.version.version, say=print).decision.is_promoted
    again = train()
    assert again.is_reused and (again.version.run_id, again.version.uri) == (first.version.run_id, first.version.uri)
    assert said[-1] == f"reused: {first.version.uri} was trained on this version with these settings"
    other = train(overrides=[*SMALL, "training.seed=1"])
    assert not other.is_reused and other.version.run_id != first.version.run_id
    assert run_train(
        lake=registry_lake.root.uri, resume=first.version.run_id, tracking=store.tracking_uri, say=print
    ).version.uri == first.version.uri  # fmt: skip


TRAINS = """
import sys
from training.mlflow import tracked_training

launch = tracked_training._launch

def slow(config, run, **more):
    print(run.id, flush=True)
    sys.stdin.readline()
    return launch(config, run, **more)

tracked_training._launch = slow
found = tracked_training.run_train(
    lake=sys.argv[1], dataset="synthetic", recipe="tiny", overrides=sys.argv[3:], reuse=True, tracking=sys.argv[2],
    say=lambda line: print(line, file=sys.stderr),
)
print(found.version.run_id, flush=True)
"""


@pytest.fixture
def elsewhere(client: mlflow.MlflowClient, registry_lake: Lake) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that trains, stopped before its first epoch until it is given a line; and its run."""
    command = [sys.executable, "-c", TRAINS, registry_lake.root.uri, client.tracking_uri, *SMALL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.trial
def test_a_run_that_another_process_trains_is_waited_for_and_not_resumed(
    client: mlflow.MlflowClient,
    registry_lake: Lake,
    elsewhere: tuple[subprocess.Popen[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    process, run_id = elsewhere
    assert client.get_run(run_id).info.status == "RUNNING"
    where = ["--lake", registry_lake.root.uri, "--tracking-uri", client.tracking_uri]
    assert run(["train", "--resume", run_id, *where]) == 2
    error = capsys.readouterr().err
    assert f"process {process.pid} on" in error and run_id in error and "Traceback" not in error
    said: list[str] = []

    def on_line(line: str) -> None:
        said.append(line)
        if "waiting" in line:
            process.stdin.write("go\n")
            process.stdin.flush()

    found = trainer(client, registry_lake, said)(say=on_line)
    assert found.is_reused and found.version.run_id == run_id
    assert f"process {process.pid} on" in said[0] and "waiting for it" in said[0]
    assert len(client.search_runs([client.get_experiment_by_name("multilink-synthetic").experiment_id])) == 1


@pytest.mark.trial
def test_a_run_whose_process_was_killed_is_free_at_once(
    client: mlflow.MlflowClient, registry_lake: Lake, elsewhere: tuple[subprocess.Popen[str], str]
) -> None:
    process, run_id = elsewhere
    with pytest.raises(HeldError, match=f"process {process.pid} on"), hold(runs_folder(registry_lake).child(run_id)):
        pytest.fail("two hold it")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert client.get_run(run_id).info.status == "RUNNING"  # nobody is left to say otherwise
    found = trainer(client, registry_lake, [])()
    assert not found.is_reused and found.version.run_id == run_id
    assert client.get_run(run_id).info.status == "FINISHED"


def test_the_command_reuses(
    client: mlflow.MlflowClient, registry_lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    where = ["--lake", registry_lake.root.uri, "--tracking-uri", client.tracking_uri, "--dataset", "synthetic"]
    command = ["train", "--recipe", "tiny", *settings, *where, "--no-report", "--reuse", "--json"]
    found = []
    for _ in range(2):
        assert run(command) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert [each["is_reused"] for each in found] == [False, True]
    assert found[0]["model_uri"] == found[1]["model_uri"]
    assert run([*command, "--resume", found[0]["run_id"]]) == 2
    assert "expected no --resume" in capsys.readouterr().err


def test_what_is_taken_out_reaches_the_models_that_are_trained_from_it_later(
    client: mlflow.MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before such a training it is refused; what began before the removal is tainted, or has lost its data."""
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=20, val=10, test=10))
    train, launch = trainer(client, lake, []), tracked_training._launch
    first = train().version

    def meanwhile(happens: Callable[[], object]) -> None:
        monkeypatch.setattr(tracked_training, "_launch", lambda *of, **how: (launch(*of, **how), happens())[0])

    why = f"trained from {first.uri}; out of synthetic@v1 1 documents and 2 images were taken on"
    meanwhile(partial(taint, client, lake, "synthetic", "v1", documents=1, images=2))
    late = train(overrides=[*SMALL, f"training.start_from={first.uri}"]).version
    assert str(record_of(client, late.name).taint(late.version)).startswith(why)
    with pytest.raises(UsageError, match=f"training.start_from: the model would be {why}.*: start from another"):
        train(overrides=[*SMALL, f"training.start_from=runs:/{first.run_id}/model"])
    with pytest.raises(UsageError, match=why):
        run_train(lake=lake.root.uri, resume=late.run_id, tracking=client.tracking_uri, say=print)
    meanwhile(lake.dataset("synthetic", "v1").remove)
    with pytest.raises(NotFoundError, match="no data set 'synthetic'"):
        train(overrides=[*SMALL, "training.seed=2"])


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
    (run,) = client.search_runs([client.get_experiment_by_name("multilink-synthetic").experiment_id])
    with pytest.raises(UsageError, match="expected no --dataset, --recipe and --set"):
        go(resume=run.info.run_id, overrides=["training.epochs=20"])
    with pytest.raises(KeyboardInterrupt):
        go(resume=run.info.run_id)
    first, resumed = launched
    assert first == resumed and first.training.epochs == 10
    assert client.get_run(run.info.run_id).info.status == "KILLED"


def test_what_the_registry_lacks_is_said(client: mlflow.MlflowClient, registered: str, tmp_path: Path) -> None:
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
