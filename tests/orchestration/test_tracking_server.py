"""Training and promotion through an MLflow server that is killed while they talk to it, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import pytest

from orchestration.config import DatasetSettings, Settings
from orchestration.local.supervisor import HOST, MARK_VARIABLE, Supervisor
from orchestration.local.up import Ports, choose_ports, make_services, mlflow_page, mlflow_service
from orchestration.plan import Plan
from orchestration.steps import Step, as_json

sys.path.insert(0, str(Path(__file__).parent))
from released import write_released
from running import wait_for

ROOT = Path(__file__).resolve().parents[2]
DATASET, MODEL = "multi-retrieval", "multilink-multi-retrieval-cross-document"
EPOCHS = 30
SMALL = (f"training.epochs={EPOCHS}", "dimensions=32", "text.word_dimensions=32", "text.dropout=0", "image.dropout=0")
PORTS = Ports(code=1, dagster=2, mlflow=3, pages=4)


@dataclass
class Server:
    """An MLflow server that is kept running, and how to kill it."""

    keeper: Supervisor
    address: str
    log: Path

    def client(self) -> mlflow.MlflowClient:
        return mlflow.MlflowClient(self.address, registry_uri=self.address)

    def is_asked(self) -> Callable[[], bool]:
        """Return what says whether anything was asked of the server since now."""
        before = self.log.stat().st_size
        return lambda: self.log.stat().st_size > before

    def epochs(self) -> int:
        """Return how many epochs of the newest run are logged."""
        experiment = self.client().get_experiment_by_name(f"multilink-{DATASET}")
        runs = self.client().search_runs([experiment.experiment_id]) if experiment else []
        return len(self.client().get_metric_history(runs[0].info.run_id, "validation_loss")) if runs else 0

    def kill(self) -> None:
        """Kill the server, and start it again as `multilink up` does."""
        first = self.keeper.pid("mlflow")
        os.killpg(first, signal.SIGKILL)
        wait_for(lambda: self.keeper.watch() or self.keeper.pid("mlflow") != first)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    port = choose_ports(0, 0, say=print).mlflow
    service = mlflow_service(f"sqlite:///{tmp_path / 'mlflow.db'}", artifacts=tmp_path / "artifacts", port=port)
    environment = {MARK_VARIABLE: f"test-server-{os.getpid()}", "PYTHONPATH": str(ROOT)}
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONUNBUFFERED": "1"}
    keeper = Supervisor([service], environment | quiet, tmp_path / "logs", print)
    with keeper.running():
        yield Server(keeper, f"http://{HOST}:{port}", tmp_path / "logs" / "mlflow.log")


DO = "import json, sys; from orchestration.steps import *; step = from_json(json.loads(sys.argv[1]))"


def done(step: Step) -> dict[str, Any]:
    """Do a step in another process."""
    program = f"{DO}; print(json.dumps(summary_of(step, lambda line: None)))"
    command = [sys.executable, "-c", program, json.dumps(as_json(step))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    summary: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return summary


def killed_during(server: Server, step: Callable[[], dict[str, Any]], is_time: Callable[[], bool]) -> dict[str, Any]:
    """Do a step, and kill the server once it is time; the step must not have ended by then."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(step)
        wait_for(lambda: doing.done() or is_time())
        assert not doing.done(), doing.result()
        server.kill()
        return doing.result()


@pytest.mark.trial
@pytest.mark.skipif(sys.platform != "linux", reason="what is left is found in /proc")
def test_a_server_that_is_killed_delays_training_and_promotion_and_changes_nothing(
    server: Server, tmp_path: Path
) -> None:
    files = write_released(tmp_path / "own", train=40)
    dataset = DatasetSettings(
        name=DATASET,
        settings=(*files, "features.sentences=[]"),
        train_settings=(*SMALL, "training.learning_rate=3e-3"),
    )
    settings = Settings(
        lake=str(tmp_path / "lake"),
        tracking_uri=server.address,
        datasets=(dataset,),
    )
    plan = Plan(settings=settings)
    built = done(plan.build(dataset))
    train = partial(done, plan.train(dataset, built["version"], "cross-document"))
    trained = killed_during(server, train, lambda: server.epochs() >= 2)
    assert trained["epochs"] == EPOCHS
    logged = [each.step for each in server.client().get_metric_history(trained["run_id"], "validation_loss")]
    assert logged == list(range(1, EPOCHS + 1))  # none lost, none twice
    challenger = server.client().get_model_version_by_alias(MODEL, "challenger")
    assert (challenger.version, challenger.run_id) == (trained["version"], trained["run_id"])

    promote = partial(done, plan.promote(MODEL, trained["version"]))
    decision = killed_during(server, promote, server.is_asked())
    assert decision["is_promoted"], decision
    champion = server.client().get_model_version_by_alias(MODEL, "champion")
    assert champion.version == trained["version"]
    assert len(server.client().search_model_versions(f"name = '{MODEL}'")) == 1


def test_a_server_that_the_settings_name_is_used_and_no_other_is_started(tmp_path: Path) -> None:
    own, given = Settings().relative_to(tmp_path), Settings(tracking_uri="http://mlflow:5000").relative_to(tmp_path)
    assert [each.name for each in make_services(tmp_path, own, PORTS)] == [
        "mlflow",
        "code",
        "webserver",
        "daemon",
        "pages",
    ]
    assert [each.name for each in make_services(tmp_path, given, PORTS)] == ["code", "webserver", "daemon", "pages"]
    assert mlflow_page(own, PORTS) == "http://127.0.0.1:3"
    assert mlflow_page(given, PORTS) == "http://mlflow:5000"
