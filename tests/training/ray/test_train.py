"""Training through a real local Ray: several workers, and a driver that is killed."""

import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import lakes
import psutil
import pytest
import ray
import ray.train
from forked import Running, clean_environment, start
from ray.cluster_utils import Cluster

from schemas.configs import resolve
from schemas.lake import Lake
from schemas.messages import BuildError, ConfigError, UsageError
from schemas.overrides import override
from training.config import LoopConfig, TrainConfig
from training.loop.trainer import runs_folder
from training.mlflow.runs import connect
from training.mlflow.tracked_training import TASKS, run_train
from training.model import LinkModel
from training.parts import DataConfig
from training.ray import train as ray_train
from training.ray.train import (
    HEAD,
    _delivered,
    _fit_surviving,
    _own_error,
    cluster,
    launch,
)
from training.recipes import recipe
from training.towers.vectors import LinearSettings, SentenceSettings

CONFIG = TrainConfig(
    recipe="tiny",
    data=DataConfig(sentence_features="text-test"),
    dimensions=16,
    text=SentenceSettings(dropout=0.2),
    image=LinearSettings(dropout=0.2, standardise=True),
    training=LoopConfig(epochs=12, learning_rate=1e-3, batches_per_step=2),
)
DRIVER = """
import json, sys, time
from schemas.configs import restore
from training import recipes
from training.config import TrainConfig
from training.mlflow.tracked_training import TASKS, run_train
settings = json.loads(sys.argv[1])
config = restore(TrainConfig, settings.pop("config"))
recipes.RECIPES["tiny"] = lambda: config
def say(line):
    if line.startswith("epoch 5/"):
        time.sleep(600)  # until it is killed
run_train(**settings, recipe="tiny", say=say)
"""
PATIENCE_S = 300


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("launch") / "lake", lakes.splits(train=40, val=12), is_named=True)


def train_undisturbed(config: TrainConfig, lake: Lake, folder: Path) -> LinkModel:
    """Return the model of one process that nothing stops."""
    return LinkModel.load(lakes.learn(config, lake, folder))


def assert_same_weights(found: LinkModel, expected: LinkModel, tolerance: float) -> None:
    weights = found.state_dict()
    for name, value in expected.state_dict().items():
        assert weights[name].sub(value).abs().max() <= tolerance, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(CONFIG, id="steps"),
        pytest.param(override(recipe("closed-form"), ["dimensions=8"]), id="solved", marks=pytest.mark.trial),
    ],
)
def test_two_ray_workers_train_the_model_of_one_process(whole: TrainConfig, lake: Lake, tmp_path: Path) -> None:
    config = replace(whole, training=replace(whole.training, epochs=4))
    reported: list[Mapping[str, float]] = []
    lines: list[str] = []
    result = launch(
        config,
        lake=lake,
        dataset="synthetic@v1",
        workers=2,
        run_id=f"two-{whole.recipe}",
        on_report=reported.append,
        on_progress=lines.append,
    )
    assert [metrics["epoch"] for metrics in reported] == [1, 2, 3, 4]
    assert result.epochs == 4 and len(result.history) == 4
    assert result.history[-1] == reported[-1]
    assert result.model == Path(lake.root.uri) / "runs" / f"two-{whole.recipe}" / "model"
    found, alone = LinkModel.load(result.model), train_undisturbed(config, lake, tmp_path)
    if whole is not CONFIG:  # a sum of sums in one order: the same bits
        assert found.digest() == alone.digest()
    assert_same_weights(found, alone, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "then"), [(1, 1), *(pytest.param(*pair, marks=pytest.mark.trial) for pair in [(1, 2), (2, 1)])]
)
def test_a_killed_driver_is_resumed_as_one_run_with_the_same_weights(
    lake: Lake, empty_store: str, tmp_path: Path, workers: int, then: int
) -> None:
    """One worker trains in the driver, two by Ray; either goes on where the other was."""
    where = {"lake": lake.root.uri, "dataset": "synthetic", "tracking": empty_store, "workers": workers}
    arguments, known = where | {"config": resolve(CONFIG)}, set(runs_folder(lake).names())
    (tmp_path / "driver.py").write_text(DRIVER)
    driver = start(
        json.dumps(arguments), folder=tmp_path, environment=clean_environment(), program=tmp_path / "driver.py"
    )
    try:
        run_id = _wait_for_epoch(lake, empty_store, 3, driver, known)
    finally:
        driver.process.kill()
        driver.finish()

    client = connect(empty_store)
    assert client.get_run(run_id).info.status == "RUNNING"
    lines: list[str] = []
    summary = run_train(lake=lake.root.uri, resume=run_id, workers=then, tracking=empty_store, say=lines.append)
    assert ("starting Ray" in lines) is (then == 2)

    assert not [line for line in lines if line.startswith("epoch 1/")]  # it was not trained again
    assert [line for line in lines if line.startswith("epoch 12/12")]
    assert (summary.version.run_id, summary.version.version) == (run_id, "1")
    steps = [point.step for point in client.get_metric_history(run_id, "validation_loss")]
    assert sorted(steps) == list(range(1, 13))
    assert client.get_run(run_id).info.status == "FINISHED"
    model = LinkModel.load(Path(runs_folder(lake).child(run_id, "model").uri))
    assert_same_weights(model, train_undisturbed(CONFIG, lake, tmp_path / "alone"), 1e-4)


def _wait_for_epoch(lake: Lake, tracking: str, epoch: int, driver: Running, known: set[str]) -> str:
    """Return the id of the new run that has logged an epoch, once there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and driver.process.is_alive():
        for run_id in set(runs_folder(lake).names()) - known:
            points = [] if run_id == TASKS else connect(tracking).get_metric_history(run_id, "train_loss")
            if any(point.step >= epoch for point in points):
                return run_id
        time.sleep(0.02)
    raise AssertionError(f"no epoch {epoch} after {PATIENCE_S} s; the driver's status is {driver.process.exitcode}")


def test_what_a_callback_raises_is_raised_at_the_end_and_workers_have_the_priority_of_the_command() -> None:
    @ray.remote
    def niceness() -> int:
        return os.nice(0)

    def refuse(metrics: Mapping[str, float]) -> None:
        raise BuildError(f"epoch {metrics['epoch']:.0f} cannot be logged")

    lines: list[str] = []
    refused = pytest.raises(BuildError, match="epoch 1 cannot be logged")
    with cluster(None, 1):
        with refused, _delivered(refuse, lines.append) as messages:
            messages.put("reading the data")
            for epoch in range(1, 5):  # the run goes on
                messages.put({"epoch": float(epoch)})
            lines.append("over")
        assert ray.get(niceness.remote()) == os.nice(0)
    assert set(lines) == {"reading the data", "over"}


def test_mistakes_are_said_before_anything_starts(lake: Lake, empty_store: str) -> None:
    where = {"lake": lake.root.uri, "recipe": "tiny", "tracking": empty_store, "say": print}
    for options, error, words in (
        ({"dataset": "synthetic", "overrides": ["data.image_features=other"]}, ConfigError, "image_features"),
        (
            {"dataset": "synthetic", "overrides": ["training.start_from=models:/nobody@champion"]},
            UsageError,
            "start_from = 'models:/nobody@champion': no model 'nobody'",
        ),
        ({}, UsageError, "data set "),
    ):
        with pytest.raises(error, match=words):
            run_train(**where, **options)
    assert connect(empty_store).get_experiment_by_name("multilink-synthetic") is None


def test_the_error_of_ours_is_found_behind_rays() -> None:
    @dataclass
    class WrappedError(Exception):
        cause: Exception

    assert isinstance(_own_error({1: WrappedError(ConfigError("no")), 0: ValueError("aborted")}), ConfigError)
    assert _own_error({0: ValueError("crash")}) is None


def _crashes_of(checkpoints: list[str]) -> int:
    """Return how many crashes end a training whose newest checkpoints are these, one before each crash."""
    left = iter(["", *checkpoints])
    crashes = 0

    class Trainer:
        def fit(self) -> None:
            nonlocal crashes
            crashes += 1
            raise ray.train.WorkerGroupError("a worker died", {0: RuntimeError("killed")})

    with pytest.raises(BuildError, match="training failed on worker 0: RuntimeError: killed"):
        _fit_surviving(Trainer, lambda: next(left))  # type: ignore[arg-type]
    return crashes


def test_crashes_are_counted_since_the_last_checkpoint() -> None:
    assert _crashes_of([""] * 9) == 3
    assert _crashes_of(["1"] * 9) == 3
    assert _crashes_of(["1", "2", "2", "3", "4", "4", "4"]) == 7


def kill_workers() -> bool:
    """Kill the workers of this process's training, and no others; return whether there was one."""
    found = False
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "RayTrainWorker" in process.name() or any("RayTrainWorker" in part for part in process.cmdline()):
                process.kill()
                found = True
    return found


@pytest.mark.trial  # four starts of a worker
def test_a_training_outlives_crashes_that_epochs_lie_between(lake: Lake, tmp_path: Path) -> None:
    killed = list[float]()

    def kill(metrics: Mapping[str, float]) -> None:
        if metrics["epoch"] in (2, 4, 6) and metrics["epoch"] not in killed:
            killed.append(metrics["epoch"])
            kill_workers()

    config = replace(CONFIG, training=replace(CONFIG.training, epochs=60))
    where = {"lake": lake, "dataset": "synthetic@v1", "workers": 1, "run_id": "outlives"}
    result = launch(config, **where, on_report=kill, on_progress=print)
    assert killed == [2, 4, 6]
    assert_same_weights(LinkModel.load(result.model), train_undisturbed(config, lake, tmp_path), 1e-4)


@pytest.mark.trial  # workers are killed again and again
def test_workers_that_die_while_they_start_end_a_training(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray begins workers anew that did not come up, and waits for room in the same way."""
    monkeypatch.setattr(ray_train, "STARTS_TRIED", 4)
    is_over, kills = threading.Event(), list[float]()

    def kill() -> None:
        while not is_over.wait(0.02):
            if kill_workers():
                kills.append(time.monotonic())

    where = {"lake": lake, "dataset": "synthetic@v1", "workers": 1, "run_id": "startless"}
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            with pytest.raises(BuildError, match=r"^Ray Train could not run: ControllerError: [^\n]+$"):
                launch(CONFIG, **where, on_report=print, on_progress=print)
        finally:
            is_over.set()
        killing.result()
    assert len(kills) > 4


@pytest.mark.trial  # three nodes of Ray
def test_what_hears_of_epochs_lies_on_the_head_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray puts actors that need no processor anywhere; a run would die with a node that only listened for it."""

    def node_of(actor: object) -> str:  # pickled by value: workers cannot import what the tests import
        return str(ray.get_runtime_context().get_node_id())

    monkeypatch.setenv("RAY_worker_niceness", "0")  # else these nodes' workers get what other tests leave: minutes
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        machines.add_node(num_cpus=1)
    try:
        with cluster(machines.address, 1):
            (head,) = (node["NodeID"] for node in ray.nodes() if HEAD in node["Resources"])
            assert len(ray.nodes()) == 3
            for _ in range(4):
                with _delivered(lambda metrics: None, lambda line: None) as messages:
                    where = ray.get(messages.actor.__ray_call__.remote(node_of))
                    assert where == head
    finally:
        machines.shutdown()
