"""The registry behind a real `mlflow server`: all its commands over HTTP, artefacts through its proxy, and its death.

The server keeps its tables in SQLite and is killed (SIGKILL, all its processes) in the middle of a promotion.
"""

import os
import signal
import threading
from pathlib import Path

import pytest
import servers

from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.mlflow.loading import load
from training.mlflow.promotion import promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import logged_model
from training.mlflow.runs import connect, experiment_id
from training.workflows.evaluate import run_evaluate


@pytest.mark.trial
def test_a_server_that_dies_in_the_middle_changes_nothing(
    registry_lake: Lake, trained: Path, template: Path, tmp_path: Path
) -> None:
    lake = registry_lake.root.uri
    with servers.mlflow_server(tmp_path, template) as (uri, keeper):
        client = connect(uri)
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
                os.killpg(keeper.pid("mlflow"), signal.SIGKILL)
                threading.Timer(1.0, keeper.watch).start()

        promoted = promote(client, "linker", "2", say=die_and_rise)
        assert promoted.decision.is_promoted and promoted.champion == "1"
        assert len(lines) == 1 and record_of(client, "linker").champions == ("2", "1")

        run_evaluate(model="models:/linker@champion", dataset="synthetic", lake=lake, tracking=uri, say=print)
        loaded = load("models:/linker@champion", client)
        assert loaded.version is not None and loaded.calibration is not None
        assert logged_model(client, loaded.version).artifact_location.startswith("mlflow-artifacts:")
        assert rollback(client, "linker")[0].version == "1"
