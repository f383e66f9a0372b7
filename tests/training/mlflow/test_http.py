"""The registry behind a real `mlflow server`: all its commands over HTTP, artefacts through its proxy, and its death.

The server keeps its tables in SQLite and is killed (SIGKILL, all its processes) in the middle of a promotion.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.mlflow.loading import load
from training.mlflow.promotion import promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import logged_model
from training.mlflow.runs import connect, experiment_id
from training.workflows.evaluate import run_evaluate

START_S = 120.0


class Server:
    """`mlflow server` on a port of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        store = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--serve-artifacts"]
        where = ["--artifacts-destination", str(self.folder / "artefacts"), "--host", "127.0.0.1"]
        command = [sys.executable, "-m", "mlflow", "server", *store, *where, "--port", str(self.port), "--workers", "1"]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # else eight more processes
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                pytest.fail(f"mlflow server does not answer: {(self.folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        deadline = time.monotonic() + START_S
        while self._answers():  # its workers die a moment later
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def server(template: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "mlflow.db").write_bytes(template.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        made = Server(tmp_path, int(probe.getsockname()[1]))
    made.start()
    try:
        made.wait()
        yield made
    finally:
        made.kill()


@pytest.mark.trial
def test_a_server_that_dies_in_the_middle_changes_nothing(
    server: Server, registry_lake: Lake, trained: Path, template: Path, tmp_path: Path
) -> None:
    client, lake = connect(server.uri), registry_lake.root.uri
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": lake}
    for _ in range(2):
        run = client.create_run(experiment_id(client, "multilink-synthetic"))
        register(client, trained, name="linker", run_id=run.info.run_id, tags=tags)
        client.set_terminated(run.info.run_id)
    assert promote(client, "linker", "1", say=print).decision.is_promoted

    lines: list[str] = []

    def die_and_rise(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            server.kill()
            threading.Timer(1.0, server.start).start()

    promoted = promote(client, "linker", "2", say=die_and_rise)
    assert promoted.decision.is_promoted and promoted.champion == "1"
    assert len(lines) == 1 and record_of(client, "linker").champions == ("2", "1")

    run_evaluate(model="models:/linker@champion", dataset="synthetic", lake=lake, tracking=server.uri, say=print)
    loaded = load("models:/linker@champion", client)
    assert loaded.version is not None and loaded.calibration is not None
    assert logged_model(client, loaded.version).artifact_location.startswith("mlflow-artifacts:")
    assert rollback(client, "linker")[0].version == "1"
