"""The registry on servers: MLflow's tables in a real PostgreSQL, its artefacts behind a real S3 server, on loopback.

PostgreSQL is Debian's package `postgresql`; without it these tests are skipped. It refuses to run as root, so root
starts it as `nobody`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
import mlflow
import pytest

from schemas.errors import UsageError
from schemas.lake import Lake
from training.mlflow.copying import copy_version
from training.mlflow.promotion import current, promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import DECISION_TAG, find_version, load
from training.mlflow.runs import artifact_root, connect, experiment_id
from training.model import LinkModel

BUCKET = "models"
START_S = 60.0


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's server programs, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _server(command: list[str], port: int, *, user: str | None = None) -> Iterator[None]:
    """Run a server until the body ends, from the moment it answers."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, user=user, cwd="/", stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    pytest.fail(f"{command[0]} does not answer: {log.read()}")
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGINT)  # to PostgreSQL: now, whoever is still connected
            process.wait(timeout=START_S)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URI of a fresh PostgreSQL database."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="multilink-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if user is not None:
            shutil.chown(folder, user)
        data, port = f"{folder}/data", _free_port()
        options = ["-U", "mlflow", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        initialise = [str(programs / "initdb"), "-D", data, *options]
        subprocess.run(initialise, user=user, cwd="/", check=True, capture_output=True)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        with _server(
            [str(programs / "postgres"), "-D", data, "-p", str(port), "-k", folder, *settings], port, user=user
        ):
            yield f"postgresql://mlflow@127.0.0.1:{port}/postgres"


@pytest.fixture(scope="module")
def object_store() -> Iterator[Mapping[str, str]]:
    """The environment in which an S3 server with an empty bucket is reached."""
    port = _free_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "MULTILINK_ARTIFACTS": f"s3://{BUCKET}/mlflow",
    }
    with _server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        _s3(environment).create_bucket(Bucket=BUCKET)
        yield environment


def _s3(environment: Mapping[str, str]) -> "boto3.client":
    return boto3.client(
        "s3",
        endpoint_url=environment["MLFLOW_S3_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )


@pytest.fixture
def served(
    postgres: str, object_store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[mlflow.MlflowClient]:
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    yield connect(postgres)


def test_trained_registered_promoted_rolled_back_loaded_and_copied(
    served: mlflow.MlflowClient,
    object_store: Mapping[str, str],
    registry_lake: Lake,
    trained: Path,
    template: Path,
    tmp_path: Path,
    contest: Callable[..., list[Mapping[str, str]]],
) -> None:
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": registry_lake.root.uri}
    for _ in range(2):
        run = served.create_run(experiment_id(served, "multilink-synthetic"))
        version = register(served, trained, name="linker", run_id=run.info.run_id, tags=tags)
        served.set_terminated(run.info.run_id)
        assert promote(served, "linker", version.version, say=print).decision.is_promoted
    assert rollback(served, "linker")[0].version == "1"

    loaded = load("models:/linker@champion", served)
    assert loaded.version is not None and loaded.version.version == "1"
    for name, weights in LinkModel.load(trained).state_dict().items():
        assert loaded.model.state_dict()[name].equal(weights)
    assert DECISION_TAG in loaded.version.tags
    keys = [item["Key"] for item in _s3(object_store).list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert sum(key.endswith("/weights.pt") for key in keys) == 2
    assert sum(key.endswith("/model_card.md") for key in keys) == 2
    assert sum("/promotion/linker-" in key for key in keys) == 2

    outcomes = contest(served.tracking_uri, "linker", ["1", "2"], rounds=2)
    assert [sorted(outcome.values()) for outcome in outcomes] == [["lost", "won"]] * 2
    winners = [next(version for version, result in outcome.items() if result == "won") for outcome in outcomes]
    assert current(served, "linker").line == (*reversed(winners), "1")
    assert find_version(served, "linker", "champion").version == winners[-1]

    elsewhere = tmp_path / "mlflow.db"
    elsewhere.write_bytes(template.read_bytes())
    done = copy_version(served.tracking_uri, "linker", "2", to=f"sqlite:///{elsewhere}", say=print)
    assert done.is_new and DECISION_TAG not in done.version.tags


def test_a_database_server_must_be_told_where_artefacts_go() -> None:
    uri = "postgresql://mlflow@db/mlflow"
    with pytest.raises(UsageError, match="MULTILINK_ARTIFACTS: expected where a postgresql store keeps artefacts"):
        artifact_root(uri, environment={})
    told = {"MULTILINK_ARTIFACTS": "s3://models/mlflow/"}
    assert artifact_root(uri, environment=told) == "s3://models/mlflow"
    assert artifact_root("sqlite:////home/me/mlflow.db", environment={}) == "file:///home/me/mlartifacts"
    assert artifact_root("sqlite:////home/me/mlflow.db", environment=told) == "s3://models/mlflow"
    assert artifact_root("http://mlflow:5000", environment=told) is None
