"""A running `multilink up` as tests see it: its processes, Dagster's record, the registry, the lake, and a browser.

What is asked of it, and in which order processes are killed, is in the tests (`test_up.py`).
"""

import contextlib
import datetime
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import dagster._daemon
import mlflow
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._scheduler.scheduler import launch_scheduled_runs
from playwright.sync_api import Page, sync_playwright
from repository import ROOT
from servers import children_of, command_of, wait_for

from orchestration.dagster.checks import KINDS, PARTITION_TAG, VERSION
from orchestration.dagster.pipes import EXTERNAL
from orchestration.local.supervisor import MARK_VARIABLE, marked
from schemas.lake import MANIFEST

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_S = 600.0
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
Made = tuple[str, str]  # a data set version, and the run that made it


@dataclass
class Up:
    """A `multilink up` of one data set and objective, and what its workspace says."""

    workspace: Path
    dataset: str
    objective: str
    process: subprocess.Popen[str]
    dagster: str
    mlflow: str
    pages: str
    instance: dg.DagsterInstance
    clock: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))

    @property
    def model(self) -> str:
        """Return the registered model's name."""
        return f"multilink-{self.dataset}-{self.objective}"

    @property
    def mark(self) -> str:
        environment = Path(f"/proc/{self.pid_of('dagster-daemon')}/environ").read_bytes().split(b"\0")
        return next(each.decode() for each in environment if each.startswith(MARK_VARIABLE.encode())).partition("=")[2]

    def pid_of(self, words: str) -> int:
        """Return the process kept by `multilink up` whose command holds some words."""
        return children_of(words, self.process.pid)[0]

    def kill(self, words: str) -> None:
        """Kill a process, and wait until another is there in its place."""
        pid = self.pid_of(words)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: children_of(words, self.process.pid) not in ([], [pid]))

    def kill_itself(self) -> None:
        """Kill `multilink up`, wait until nothing of it is left, and start it again."""
        mark = self.mark
        self.process.kill()
        self.process.wait(60)
        wait_for(lambda: not marked(mark))
        self.process.stdout.close()
        self.process, self.dagster, self.mlflow, self.pages = start(self.workspace)

    def trainer(self) -> int | None:
        """Return the process of a training whose run has begun, or None while there is none."""
        client = self.client()
        experiment = client.get_experiment_by_name(f"multilink-{self.dataset}")
        begun = experiment and client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'")
        started = [pid for pid in marked(self.mark) if EXTERNAL in command_of(pid)] if begun else []
        return started[0] if started else None

    def a_week_later(self) -> None:
        """Let the daemon's scheduler do what is due a week later."""
        self.clock += datetime.timedelta(days=7)
        with WorkspaceProcessContext(
            self.instance, WorkspaceFileTarget([str(self.workspace / "dagster" / "workspace.yaml")])
        ) as context:
            errors = launch_scheduled_runs(context, logging.getLogger("test"), self.clock, iteration_times={})
            assert [error for error in errors if error is not None] == []

    def newest(self) -> Made | None:
        """Return the data set version that was made last."""
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("shards"), asset_partitions=[self.dataset])
        records = self.instance.fetch_materializations(wanted, limit=1).records
        found = [(str(each.asset_materialization.metadata[VERSION].value), each.run_id) for each in records]
        return found[0] if found else None

    def is_busy(self) -> bool:
        """Return whether a run of the data set is unfinished."""
        filters = dg.RunsFilter(statuses=UNFINISHED, tags={PARTITION_TAG: self.dataset})
        return bool(self.instance.get_runs(filters, limit=1))

    def runs(self, kind: str, *statuses: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
        """Return the runs of an asset or a job, those of some statuses where any is given."""
        found = self.instance.get_runs(dg.RunsFilter(statuses=statuses or None))
        return [run for run in found if kind in {run.job_name, *(key.path[-1] for key in run.asset_selection or ())}]

    def versions_of(self, kind: str) -> list[str]:
        """Return the data set versions an asset of the model was made of, newest first."""
        key = dg.AssetKey([self.objective.replace("-", "_"), kind])
        wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[self.dataset])
        records = self.instance.fetch_materializations(wanted, limit=50).records
        return [str(each.asset_materialization.metadata["version"].value) for each in records]

    def is_done(self, version: str) -> bool:
        """Return whether all is made of a version, and linked by whoever is the champion now."""
        if any(version not in self.versions_of(kind) for kind in KINDS) or self.is_busy():
            return False
        champion = self.client().get_model_version_by_alias(self.model, "champion")
        return (self.links(version, champion.version) / MANIFEST).is_file()

    def links(self, version: str, champion: str) -> Path:
        return self.workspace / "lake" / "links" / self.dataset / version / f"{self.model}-{champion}"

    def client_page(self) -> str:
        """Return the address of the list of runs on MLflow's page."""
        experiment = self.client().get_experiment_by_name(f"multilink-{self.dataset}")
        return f"{self.mlflow}/#/experiments/{experiment.experiment_id}/runs"

    def client(self) -> mlflow.MlflowClient:
        uri = f"sqlite:///{self.workspace / 'mlflow.db'}"
        # another test of this process may have named another registry
        return mlflow.MlflowClient(uri, registry_uri=uri)


def start(workspace: Path) -> tuple[subprocess.Popen[str], str, str, str]:
    """Start `multilink up` in a workspace; gives it with the addresses it prints: Dagster, MLflow, the pages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DAGSTER_"))}
    command = [sys.executable, "-m", "orchestration", "up", "--workspace", str(workspace)]
    with (workspace / "up.err").open("a") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", "--mlflow-port", "0", "--pages-port", "0"],
            cwd=workspace.parent,  # where it leaves the project file
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    pages = [process.stdout.readline().split() for _ in range(3)]
    assert all(pages), (workspace / "up.err").read_text()
    return process, pages[0][-1], pages[1][-1].partition("/#")[0], pages[2][-1]


@contextlib.contextmanager
def started_up(workspace: Path, dataset: str, objective: str) -> Iterator[Up]:
    """Run `multilink up` in a workspace while the block lasts."""
    process, *addresses = start(workspace)
    with dg.DagsterInstance.from_config(str(workspace / "dagster")) as instance:
        running = Up(workspace, dataset, objective, process, *addresses, instance)
        try:
            yield running
        finally:
            running.process.send_signal(signal.SIGINT)
            running.process.wait(60)
            running.process.stdout.close()


@contextlib.contextmanager
def opened_page() -> Iterator[Page]:
    """Open a page of a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1600, "height": 800})
        page.set_default_timeout(WAIT_S * 1000)
        yield page
        browser.close()


def two_clicks(page: Page, address: str, picture: Path) -> None:
    """Open the address that `multilink up` printed and click twice; `picture` is taken before the second click."""
    page.goto(address)
    page.get_by_role("button", name="Materialize all").click()
    launch = page.get_by_role("button", name="Launch 1 run")
    launch.wait_for()
    page.screenshot(path=picture)
    launch.click()
    page.get_by_text("Launch runs to materialize").wait_for(state="hidden")  # it closes once the run is there
