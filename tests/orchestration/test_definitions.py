"""The definitions load from the settings alone, and what they hold is what the golden file says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from repository import ROOT

from orchestration.config import DatasetSettings, Settings
from orchestration.dagster.definitions import make_definitions

pytestmark = pytest.mark.filterwarnings("ignore:Specifying a partitions_def on an AssetCheckSpec")

WATCHED = """
import json, os, sys
import dagster  # what Dagster does when it is imported is its own
touched = []
roots = tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix, {root!r})))
roots += ("/usr/", "/proc/", "/dev/", "/etc/localtime")
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
        touched.append([event, str(arguments[:2])])
    if event == "open" and isinstance(arguments[0], str) and not os.path.realpath(arguments[0]).startswith(roots):
        touched.append([event, arguments[0]])
sys.addaudithook(hook)
from orchestration.dagster import definitions
definitions.definitions().get_repository_def()
heavy = [name for name in ("apache_beam", "ray", "torch", "mlflow", "requests", "praw") if name in sys.modules]
print(json.dumps([touched, heavy]))
"""


def test_loading_reads_the_settings_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("lake: s3://no-such-bucket/lake\ntracking_uri: http://127.0.0.1:9\ndatasets: [{name: diy}]\n")
    environment = os.environ | {
        "MULTILINK_SETTINGS": str(file),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-W", "ignore", "-c", WATCHED.format(root=str(ROOT))]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    touched, heavy = json.loads(done.stdout.splitlines()[-1])
    assert touched == [["open", str(file)]]
    assert heavy == []


@pytest.mark.parametrize(("is_running", "status"), [(False, "STOPPED"), (True, "RUNNING")])
def test_schedules_and_sensors_start_by_themselves_only_where_the_settings_say_so(
    is_running: bool, status: str
) -> None:
    datasets = (DatasetSettings(name="diy", cron="*/5 * * * *"), DatasetSettings(name="wiki"))
    settings = Settings(datasets=datasets, is_running=is_running, timezone="Europe/Berlin")
    repository = make_definitions(settings).get_repository_def()
    schedules = {each.name: (each.cron_schedule, each.execution_timezone) for each in repository.schedule_defs}
    crons = {"rebuild_diy": "*/5 * * * *", "rebuild_wiki": "0 3 1 * *"}
    assert schedules == {name: (cron, "Europe/Berlin") for name, cron in crons.items()}
    states = {each.default_status.value for each in (*repository.schedule_defs, *repository.sensor_defs)}
    assert states == {status}


def test_each_check_blocks_and_everything_can_be_one_run() -> None:
    graph = make_definitions(Settings(datasets=(DatasetSettings(name="diy"),))).resolve_asset_graph()
    assert all(graph.get_check_spec(key).blocking for key in graph.asset_check_keys)
    (partitions,) = {graph.get(key).partitions_def for key in graph.get_all_asset_keys()}
    assert partitions == dg.StaticPartitionsDefinition(["diy"])
