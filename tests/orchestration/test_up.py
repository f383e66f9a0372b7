"""Everything that `multilink up` runs, as a newcomer and as a week of schedules would use it.

One workspace for all tests here, in order: first from Dagster's page, then by schedule and sensors while processes are
killed, then nothing new, then Ctrl-C. The schedule's clock is the test's: the daemon's own scheduler is asked what it
would do a week later. Everything else - queue, sensors, runs, MLflow - are the processes of `multilink up`.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import dagster._daemon
import mlflow
import pyarrow.parquet as pq
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._scheduler.scheduler import launch_scheduled_runs

from orchestration.history import Made, busy_datasets, made
from orchestration.leftovers import MARK_VARIABLE, marked
from schemas.lake import MANIFEST, Lake

sys.path.insert(0, str(Path(__file__).parent))
from released import write_released

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
ROOT = Path(__file__).resolve().parents[2]
PICTURES = Path(__file__).parent / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DATASET, MODEL = "multi-retrieval", "multilink-multi-retrieval-cross-document"
WAIT_S = 600.0
SETTINGS = """\
is_running: true
sensor_interval_s: 1
datasets:
  - name: {dataset}
    settings: {settings}
    cron: "0 3 * * 1"
    objectives: [cross-document]
    train_settings: [training.epochs=12, training.learning_rate=3e-3, encoder.dimensions=64, encoder.dropout=0,
                     encoder.word_dimensions=32]
retries: {{attempts: 2, delay_s: 0.5}}
"""
KINDS = ("trained_model", "evaluation", "promotion", "links")


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.3)
    return found


@dataclass
class Up:
    """A running `multilink up`, and what its workspace says."""

    workspace: Path
    process: subprocess.Popen[str]
    dagster: str
    mlflow: str
    instance: dg.DagsterInstance
    clock: datetime.datetime

    @property
    def mark(self) -> str:
        environment = Path(f"/proc/{self.pid_of('dagster._daemon')}/environ").read_bytes().split(b"\0")
        return next(each.decode() for each in environment if each.startswith(MARK_VARIABLE.encode())).partition("=")[2]

    def pid_of(self, words: str) -> int:
        """Return the process kept by `multilink up` whose command holds some words."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in children}
        return next(pid for pid, command in commands.items() if words in command)

    def kill(self, words: str) -> None:
        """Kill a process, and wait until another is there in its place."""
        pid = self.pid_of(words)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self._other_than(pid, words))

    def ray_worker(self) -> int | None:
        """Return a process that trains, or None while there is none."""
        for pid in marked(self.mark):
            with contextlib.suppress(OSError):  # it has ended
                if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::RayTrainWorker"):
                    return pid
        return None

    def _other_than(self, pid: int, words: str) -> bool:
        try:
            return self.pid_of(words) != pid
        except (StopIteration, FileNotFoundError):
            return False

    def a_week_later(self) -> None:
        """Let the daemon's scheduler do what is due a week later."""
        self.clock += datetime.timedelta(days=7)
        with WorkspaceProcessContext(
            self.instance, WorkspaceFileTarget([str(self.workspace / "dagster" / "workspace.yaml")])
        ) as context:
            errors = launch_scheduled_runs(context, logging.getLogger("test"), self.clock, iteration_times={})
            assert [error for error in errors if error is not None] == []

    def newest(self) -> Made | None:
        return next(made(self.instance, DATASET, limit=1), None)

    def runs(self, job: str) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(dg.RunsFilter(job_name=job)))

    def versions_of(self, kind: str) -> list[str]:
        """Return the data set versions an asset of the model was made of, newest first."""
        key = dg.AssetKey(["cross_document", kind])
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[DATASET]), limit=50
        ).records
        return [str(each.asset_materialization.metadata["version"].value) for each in records]

    def is_done(self, version: str) -> bool:
        """Return whether all is made of a version, and linked by whoever is the champion now."""
        if any(version not in self.versions_of(kind) for kind in KINDS) or busy_datasets(self.instance):
            return False
        champion = self.client().get_model_version_by_alias(MODEL, "champion")
        return (self.links(version, champion.version) / MANIFEST).is_file()

    def links(self, version: str, champion: str) -> Path:
        return self.workspace / "lake" / "links" / DATASET / version / f"{MODEL}-{champion}"

    def client_page(self) -> str:
        """Return the address of the list of runs on MLflow's page."""
        experiment = self.client().get_experiment_by_name(f"multilink-{DATASET}")
        return f"{self.mlflow}/#/experiments/{experiment.experiment_id}/runs"

    def client(self) -> mlflow.MlflowClient:
        uri = f"sqlite:///{self.workspace / 'mlflow.db'}"
        return mlflow.MlflowClient(
            uri, registry_uri=uri
        )  # another test of this process may have named another registry


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    workspace = tmp_path_factory.mktemp("workspace")
    settings = [*write_released(workspace / "own", train=40), "features.sentences=[]"]
    (workspace / "settings.yaml").write_text(SETTINGS.format(dataset=DATASET, settings=settings), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DAGSTER_"))}
    ports = ("--port", "0", "--mlflow-port", "0")
    with (workspace / "up.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestration", "up", "--workspace", str(workspace), *ports],
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        pages = [process.stdout.readline().split()[-1] for _ in range(2)]
        assert pages[1].startswith("http://127.0.0.1:"), (workspace / "up.err").read_text()
        with dg.DagsterInstance.from_config(str(workspace / "dagster")) as instance:
            now = datetime.datetime.now(datetime.UTC)
            yield Up(workspace, process, *pages, instance, now)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def pictures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where pictures go: beside this file with `--refresh-golden`, since the README shows them."""
    if not request.config.getoption("--refresh-golden"):
        return tmp_path_factory.mktemp("pictures")
    PICTURES.mkdir(exist_ok=True)
    return PICTURES


@pytest.fixture(scope="module")
def materialised(up: Up, pictures: Path) -> str:
    """Materialise everything, from Dagster's page where there is a browser, and return the data set version."""
    if CHROMIUM is None:
        up.a_week_later()
    else:
        with opened_page() as page:
            two_clicks(page, up.dagster, pictures)
    version: str = wait_for(lambda: (newest := up.newest()) and newest.version)
    wait_for(lambda: up.is_done(version))
    return version


@contextlib.contextmanager
def opened_page() -> Iterator[Page]:
    """Open a page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1600, "height": 800})
        page.set_default_timeout(WAIT_S * 1000)
        yield page
        browser.close()


def two_clicks(page: Page, address: str, pictures: Path) -> None:
    """Open the address that `multilink up` printed and click twice."""
    page.goto(address)
    page.get_by_role("button", name="Materialize all").click()
    launch = page.get_by_role("button", name="Launch 1 run")
    launch.wait_for()
    page.screenshot(path=pictures / "launch.png")
    launch.click()
    page.get_by_text("Launch runs to materialize").wait_for(state="hidden")  # it closes once the run is there


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_from_the_asset_graph_to_a_promotion_in_two_clicks(up: Up, materialised: str) -> None:
    (run,) = [each for each in up.instance.get_runs() if each.status is dg.DagsterRunStatus.SUCCESS]
    made_in_it = {
        entry.dagster_event.asset_key.to_user_string()
        for entry in up.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    }
    assert made_in_it == {"documents", "images", "duplicates", "features", "shards"} | {
        f"cross_document/{kind}" for kind in KINDS
    }
    assert run.tags["multilink/data_set_version"] == materialised
    assert run.tags["multilink/model"] == f"models:/{MODEL}/1"
    assert run.tags["multilink/mlflow_run"].startswith(f"{up.mlflow}/#/experiments/")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_the_pages_show_what_was_made(up: Up, materialised: str, pictures: Path) -> None:
    (report,) = (up.workspace / "lake" / "reports" / DATASET / materialised).glob("*/index.html")
    with opened_page() as page:
        page.goto(up.dagster)
        page.get_by_role("button", name="Materialize all").wait_for()
        page.get_by_text("data_sets", exact=True).locator("visible=true").last.wait_for()
        page.keyboard.press("Alt+KeyE")  # expand all groups
        for asset in ("documents", "images", "duplicates", "features", "shards", *KINDS):
            page.get_by_text(asset, exact=True).locator("visible=true").first.wait_for()
        page.mouse.dblclick(1400, 200)  # fit into the window
        page.wait_for_timeout(1500)
        page.screenshot(path=pictures / "asset-graph.png")
        page.goto(report.as_uri())
        assert MODEL in page.inner_text("body")
        page.screenshot(path=pictures / "report.png")
        page.goto(up.client_page())
        page.get_by_text("hessel-2019 cross-document").first.wait_for()
    assert all((pictures / name).stat().st_size > 10_000 for name in ("launch.png", "asset-graph.png", "report.png"))


def test_what_was_made_is_told(up: Up, materialised: str) -> None:
    newest = up.newest()
    assert newest is not None
    assert newest.is_sound
    champion = up.client().get_model_version_by_alias(MODEL, "champion")
    assert champion.tags["dataset_version"] == materialised
    assert "beats random" in champion.tags["promotion"]
    links = pq.read_table(up.links(materialised, champion.version) / "links")
    assert len(set(links["document"].to_pylist())) == 64
    with urllib.request.urlopen(f"{up.mlflow}/health", timeout=60) as answer:
        assert answer.status == 200


def test_new_data_are_rebuilt_trained_judged_and_linked_while_processes_are_killed(up: Up, materialised: str) -> None:
    write_released(up.workspace / "own", train=60)
    up.a_week_later()
    wait_for(lambda: [run for run in up.runs("rebuild") if run.status is dg.DagsterRunStatus.STARTED])
    up.kill("dagster._daemon")
    version = wait_for(lambda: (newest := up.newest()) and newest.version != materialised and newest.version)
    wait_for(lambda: [run for run in up.runs("train") if run.status is dg.DagsterRunStatus.STARTED])
    os.kill(wait_for(up.ray_worker), signal.SIGKILL)
    up.kill("mlflow server")
    wait_for(lambda: up.is_done(version))

    registered = up.client().search_model_versions(f"name = '{MODEL}'")
    assert sorted(each.tags["dataset_version"] for each in registered) == sorted([materialised, version])
    assert all("promotion" in each.tags for each in registered)
    assert {kind: up.versions_of(kind)[0] for kind in KINDS} == dict.fromkeys(KINDS, version)
    assert Lake.at(str(up.workspace / "lake")).latest(DATASET) == version
    assert {each.tags["multilink/data_set_version"] for each in up.runs("train")} == {version}


def test_a_week_with_nothing_new_changes_nothing(up: Up, materialised: str) -> None:
    before = up.newest()
    assert before is not None
    runs = {job: len(up.runs(job)) for job in ("train", "promote", "link")}
    up.a_week_later()
    after = wait_for(lambda: (newest := up.newest()) and newest.run_id != before.run_id and newest)
    assert after.version == before.version
    wait_for(lambda: not busy_datasets(up.instance))
    ticks = {sensor: looks(up, sensor) for sensor in ("new_data_set_version", "new_challenger", "alias_change")}
    wait_for(lambda: all(looks(up, sensor) > count for sensor, count in ticks.items()))
    assert {job: len(up.runs(job)) for job in runs} == runs


def looks(up: Up, sensor: str) -> float:
    """Return when a sensor looked last, in seconds since 1970."""
    state = next(each for each in up.instance.all_instigator_state() if each.instigator_name == sensor)
    return state.instigator_data.last_tick_timestamp or 0.0


def test_the_end_leaves_nothing(up: Up) -> None:
    mark = up.mark
    assert marked(mark)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 130
    assert marked(mark) == []
