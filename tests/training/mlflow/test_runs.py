"""Runs in a store; a version is copied whole to another one, and a workspace that is moved or copied reads its own."""

import json
import multiprocessing
import os
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mlflow
import pytest
from loopback import Quiet, answering
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from schemas.configs import resolve
from schemas.lake import Lake
from schemas.messages import NotFoundError, UsageError
from schemas.overrides import flatten, override
from training.config import TrainConfig
from training.mlflow.champions import record_of, taint
from training.mlflow.copying import copy_version
from training.mlflow.loading import load
from training.mlflow.promotion import promote
from training.mlflow.registering import attach, register
from training.mlflow.registry import find_version, logged_model, versions
from training.mlflow.runs import (
    ATTEMPTS,
    CURVE_FILE,
    TrackedRun,
    connect,
    experiment_id,
    fetch_files,
    finishing,
    resume_run,
    run_name,
    start_run,
    training_curve,
)
from training.mlflow.stored import relocate, tracking_uri
from training.model import LinkModel, folder_digest
from training.promotions.record import CHANGED, JUDGED
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


@pytest.mark.parametrize("size", [200_000, 450_000])
def test_a_process_that_is_killed_as_it_makes_a_store_leaves_none_that_cannot_be_opened(
    tmp_path: Path, size: int
) -> None:
    """Ctrl-C in the first seconds of a demo; `size` bytes are about a quarter and a half of its tables."""
    process = multiprocessing.get_context("fork").Process(target=connect, args=(f"sqlite:///{tmp_path}/mlflow.db",))
    process.start()
    while sum(file.stat().st_size for file in tmp_path.rglob("mlflow.db")) < size:
        assert process.is_alive()
    process.kill()
    process.join()
    assert [file.name for file in tmp_path.iterdir() if file.name == "mlflow.db"] == []
    assert connect(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()


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


def _files(client: mlflow.MlflowClient, version: str, folder: Path) -> Path:
    connect(client.tracking_uri)
    found = Path(mlflow.artifacts.download_artifacts(artifact_uri=f"models:/linker/{version}", dst_path=str(folder)))
    (found / "registered_model_meta").unlink()  # MLflow's note of the address
    return found


def test_what_was_trained_on_data_that_was_taken_out_goes_to_no_other_registry(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, empty_store: str
) -> None:
    promote(client, "linker", "1", say=print)
    assert [each.version for each in taint(client, registry_lake, "synthetic", "v1", documents=1, images=2)] == ["1"]
    with pytest.raises(UsageError, match="tainted"):
        copy_version(client.tracking_uri, "linker", "champion", to=empty_store, say=print)
    assert versions(connect(empty_store)) == []


def test_a_copy_has_all_that_the_original_has(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    trained: Path,
    empty_store: str,
    tmp_path: Path,
) -> None:
    original = find_version(client, "linker", "1")
    client.log_param(original.run_id, "training.epochs", "4")
    for step, value in enumerate((0.5, 0.25)):
        client.log_metric(original.run_id, "train_loss", value, step=step)
    report = tmp_path / "index.html"
    report.write_text("<p>87 AUC</p>")
    client.log_artifact(original.run_id, str(report), "report")
    attach(client, original, report, "report")
    model_id = logged_model(client, original).model_id
    score = Metric("test_auc", 87.0, 1, 0, model_id=model_id, dataset_name="synthetic", dataset_digest="v1")
    client.log_batch(original.run_id, metrics=[score])
    promote(client, "linker", "1", say=print)

    copied, is_new = copy_version(client.tracking_uri, "linker", "champion", to=empty_store, say=print)
    target = connect(empty_store)
    arrived = find_version(target, "linker", "challenger")
    assert is_new and arrived == copied and copied.version == "1"
    digest = copied.tags["digest"]
    assert arrived.tags == find_version(connect(client.tracking_uri), "linker", "1").tags | {
        "copied_from": f"{client.tracking_uri} models:/linker/1",
        "digest": digest,
        "chosen_from": "1",
    }
    assert record_of(target, "linker").about("1", CHANGED, JUDGED) == []

    folders = [_files(client, "1", tmp_path / "one"), _files(target, "1", tmp_path / "two")]
    assert folder_digest(folders[0]) == folder_digest(folders[1]) == digest
    assert (folders[1] / "report" / "index.html").read_text() == "<p>87 AUC</p>"
    run = target.get_run(arrived.run_id)
    assert run.info.status == "FINISHED" and run.data.params == {"training.epochs": "4"}
    history = target.get_metric_history(arrived.run_id, "train_loss")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 0.25)]
    assert "report" in {item.path for item in target.list_artifacts(arrived.run_id)}
    (score,) = logged_model(target, arrived).metrics
    assert (score.key, score.value, score.run_id, score.dataset_name) == ("test_auc", 87.0, arrived.run_id, "synthetic")
    assert run.data.metrics["test_auc"] == 87.0
    assert load("models:/linker/1", target).model.digest() == LinkModel.load(trained).digest()
    assert promote(target, "linker", "challenger", lake=registry_lake, say=print).decision.is_promoted

    again, is_new = copy_version(client.tracking_uri, "linker", "1", to=empty_store, say=print)
    assert not is_new and again.version == "1"
    assert len(target.search_model_versions("name = 'linker'")) == 1


def test_a_copy_that_dies_on_the_way_is_no_version(
    client: mlflow.MlflowClient,
    registered: str,
    empty_store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def dies(*_: object) -> None:
        raise OSError("the store is full")

    monkeypatch.setattr(mlflow.MlflowClient, "log_model_artifacts", dies)
    with pytest.raises(OSError, match="the store is full"):
        copy_version(client.tracking_uri, "linker", "1", to=empty_store, say=print)
    target = connect(empty_store)
    assert not target.search_registered_models()
    experiment = target.get_experiment_by_name("multilink-synthetic")
    assert [run.info.status for run in target.search_runs([experiment.experiment_id])] == ["FAILED"]


def test_a_registry_is_not_copied_into_itself(client: mlflow.MlflowClient, registered: str) -> None:
    with pytest.raises(UsageError, match="expected another registry"):
        copy_version(client.tracking_uri, "linker", "1", to=client.tracking_uri, say=print)


def write_workspace(folder: Path, template: Path, model: Path) -> str:
    """Register a model in a workspace with a lake of its own, as training does; return the store's URI."""
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    client = connect(f"sqlite:///{folder}/mlflow.db")
    experiment = experiment_id(client, "multilink-synthetic")
    run = client.create_run(experiment, tags={"lake": f"{folder}/lake"})
    client.log_text(run.info.run_id, "kept", "note.txt")
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": f"{folder}/lake", "elsewhere": "/other/lake"}
    register(client, model, name="linker", run_id=run.info.run_id, tags=tags)
    return client.tracking_uri


def test_a_moved_workspace_is_said_and_mended(tmp_path: Path, template: Path, trained: Path) -> None:
    name = "moved with a space"
    write_workspace(tmp_path / "first", template, trained)
    (tmp_path / "first").rename(tmp_path / name)
    uri = f"sqlite:///{tmp_path}/{name}/mlflow.db"
    with pytest.raises(UsageError, match=r"was moved or copied from .*/first, .* multilink relocate --tracking-uri"):
        connect(uri)
    was, paths = relocate(uri)
    assert was == str(tmp_path / "first") and paths >= 6
    client = connect(uri)
    loaded = load("models:/linker/1", client)
    assert loaded.version is not None and loaded.version.tags["lake"] == f"{tmp_path}/{name}/lake"
    assert loaded.version.tags["elsewhere"] == "/other/lake"
    note = client.download_artifacts(str(loaded.version.run_id), "note.txt", str(tmp_path))
    assert Path(note).read_text() == "kept"
    with pytest.raises(UsageError, match="was not moved"):
        relocate(uri)


def test_a_copy_reads_its_own_files(tmp_path: Path, template: Path, trained: Path) -> None:
    first = write_workspace(tmp_path / "first", template, trained)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    connect(f"sqlite:///{tmp_path}/link/mlflow.db")  # the same folder by another name
    with pytest.raises(UsageError, match="was moved or copied"):
        connect(f"sqlite:///{tmp_path}/second/mlflow.db")
    relocate(f"sqlite:///{tmp_path}/second/mlflow.db")
    for path in (tmp_path / "first" / "mlartifacts").rglob("weights.pt"):
        path.unlink()
    assert load("models:/linker/1", connect(f"sqlite:///{tmp_path}/second/mlflow.db")).version is not None
    with pytest.raises(Exception, match="expected the files that were saved"):
        load("models:/linker/1", connect(first))


def test_other_stores_have_no_paths() -> None:
    with pytest.raises(UsageError, match="expected a database in a file"):
        relocate("http://127.0.0.1:5000")
