import json
import multiprocessing
import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mlflow
import pytest
from loopback import Quiet, answering
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from schemas.configs import resolve
from schemas.errors import NotFoundError, UsageError
from schemas.overrides import flatten, override
from training.config import TrainConfig
from training.mlflow.runs import (
    ATTEMPTS,
    CURVE_FILE,
    TrackedRun,
    connect,
    fetch_files,
    finishing,
    resume_run,
    run_name,
    start_run,
    training_curve,
)
from training.mlflow.stored import tracking_uri
from training.recipes import recipe

VERSION = "0123456789abcdef"
WEIGHTS = bytes(1000)


def _start(client: mlflow.MlflowClient, config: TrainConfig) -> TrackedRun:
    uri = "/lake/datasets/diy/" + VERSION
    return start_run(client, config, dataset="diy", version=VERSION, uri=uri, lake="/lake", workers=2)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("tiny", [], "tiny cross-document ap on diy@c43e99"),
        ("tiny", ["objective.name=nostruct", "training.epochs=2"], "tiny nostruct on diy@c43e99, training.epochs=2"),
        ("closed-form", [], "closed-form dc on diy@c43e99"),
        ("closed-form", [f"link.names=0.{4:0<200}"], "closed-form dc on diy@c43e99, ..."),
    ],
)
def test_a_person_tells_runs_apart_by_their_names(name: str, settings: list[str], expected: str) -> None:
    assert run_name(override(recipe(name), settings), "diy@c43e99", settings) == expected


@pytest.mark.parametrize(
    ("explicit", "variable", "expected"),
    [
        ("sqlite:///a.db", "http://server:5000", "sqlite:////here/a.db"),
        ("sqlite:////else/a.db", None, "sqlite:////else/a.db"),
        (None, "http://server:5000", "http://server:5000"),
        (None, "", "sqlite:////here/mlflow.db"),
        (None, None, "sqlite:////here/mlflow.db"),
    ],
)
def test_which_store(explicit: str | None, variable: str | None, expected: str) -> None:
    environment = {} if variable is None else {"MLFLOW_TRACKING_URI": variable}
    assert tracking_uri(explicit, environment=environment, directory=Path("/here")) == expected


def test_a_path_is_no_store() -> None:
    with pytest.raises(UsageError, match="expected a URI"):
        tracking_uri("mlruns", environment={}, directory=Path("/here"))


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database, whatever its name says")
    with pytest.raises(UsageError, match="cannot be opened") as caught:
        connect(f"sqlite:///{tmp_path}/mlflow.db")
    assert "\n" not in str(caught.value)


def test_processes_that_make_a_store_at_once_both_have_it(tmp_path: Path) -> None:
    """`multilink train` in two windows of a new workspace; forks meet at a barrier, so that none is late."""
    context = multiprocessing.get_context("fork")
    uri, ready = f"sqlite:///{tmp_path}/mlflow.db", context.Barrier(4)

    def open_it() -> None:
        ready.wait(60)
        connect(uri).create_experiment(f"of {os.getpid()}")

    processes = [context.Process(target=open_it) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert len(connect(uri).search_experiments()) == 5  # with MLflow's own


def test_a_run_holds_what_is_known_and_survives_its_driver(empty_store: str, tmp_path: Path) -> None:
    config = recipe("hessel-2019")
    client = connect(empty_store)
    run = _start(client, config)
    assert run.log_epoch({"epoch": 1.0, "train_loss": 0.5, "validation_precision_at_1": 40.0})

    again = resume_run(client, run.id)  # the driver was killed
    assert again.config() == config
    assert not again.log_epoch({"epoch": 1.0, "train_loss": 0.5})
    with finishing(again):
        assert again.log_epoch({"epoch": 2.0, "train_loss": 0.25})
        assert training_curve(client, run.id) == ()
        again.log_json(CURVE_FILE, [{"epoch": 1.0}, {"epoch": 2.0}])

    stored = client.get_run(run.id)
    assert stored.info.status == "FINISHED"
    assert client.get_experiment(stored.info.experiment_id).name == "multilink-diy"
    assert stored.data.params["dimensions"] == "1024"
    assert stored.data.params.keys() == flatten(resolve(config)).keys()
    tags = {"dataset_version": VERSION, "word_vectors": "random", "negatives": "hardest"}
    assert stored.data.tags.items() >= tags.items()
    [dataset] = stored.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("diy", VERSION)
    points = client.get_metric_history(run.id, "train_loss")
    assert [(point.step, point.value) for point in points] == [(1, 0.5), (2, 0.25)]
    assert training_curve(client, run.id) == ({"epoch": 1.0}, {"epoch": 2.0})
    assert {item.path for item in client.list_artifacts(run.id)} == {"config.json", "training_curve.json"}
    assert (tmp_path / "mlartifacts" / run.id / "artifacts" / "config.json").is_file()


def test_epochs_that_a_server_did_not_take_come_with_a_later_one() -> None:
    """None is lost and none comes twice; after each failure more epochs pass before the next attempt."""
    sent, is_away = list[list[int]](), iter([True, True, False, False, False])

    class Client:
        def log_batch(self, run_id: str, metrics: list[Metric]) -> None:
            if next(is_away):
                raise MlflowException("no answer")
            sent.append([metric.step for metric in metrics])

    run = TrackedRun(client=Client(), id="r", tags={})  # type: ignore[arg-type]
    assert all(run.log_epoch({"epoch": float(epoch), "train_loss": 0.5}) for epoch in range(1, 12))
    assert not run.log_epoch({"epoch": 3.0, "train_loss": 0.5})
    assert sent == [[*range(1, 10)], [10], [11]]


@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_how_a_run_ends(empty_store: str, error: type[BaseException], status: str) -> None:
    client = connect(empty_store)
    run = _start(client, recipe("tiny"))
    with pytest.raises(error), finishing(run):
        raise error
    assert client.get_run(run.id).info.status == status


def test_only_a_run_of_ours_is_resumed(empty_store: str) -> None:
    client = connect(empty_store)
    with pytest.raises(NotFoundError, match="no such run"):
        resume_run(client, "0" * 32)
    other = mlflow.MlflowClient(client.tracking_uri).create_run("0")
    with pytest.raises(NotFoundError, match="another kind of run"):
        resume_run(client, other.info.run_id)


@pytest.mark.parametrize("deaths", range(ATTEMPTS + 1))
def test_files_come_although_the_server_dies_within_one(tmp_path: Path, deaths: int) -> None:
    """One that dies at each attempt is given up."""
    asked: list[str] = []

    def answer(request: Quiet) -> tuple[int, bytes, dict[str, str]]:
        if not request.path.endswith("/weights.bin"):
            file = {"path": "weights.bin", "is_dir": False, "file_size": len(WEIGHTS)}
            return 200, json.dumps({"files": [file]}).encode(), {}
        asked.append(request.path)
        sent = WEIGHTS[:100] if len(asked) <= deaths else WEIGHTS
        return 200, sent, {"Content-Length": str(len(WEIGHTS)), "Connection": "close"}

    given_up = pytest.raises(MlflowException, match="weights") if deaths == ATTEMPTS else nullcontext()
    with answering(answer) as port, given_up:
        uri = f"http://127.0.0.1:{port}/api/2.0/mlflow-artifacts/artifacts/run"
        found = fetch_files(partial(mlflow.artifacts.download_artifacts, artifact_uri=uri, dst_path=tmp_path))
        assert (found / "weights.bin").read_bytes() == WEIGHTS
    assert len(asked) == min(deaths + 1, ATTEMPTS)
