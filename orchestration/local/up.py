"""`multilink up`: Dagster and MLflow on this machine, everything registered, until Ctrl-C.

Without settings in the workspace, the demo's are written there: the data set `diy` from a copy of the recorded web, to
which posts can be added, trained with the recipe `tiny`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.console import Console
from schemas.errors import UsageError

if TYPE_CHECKING:
    from orchestration.local.services import Service

SETTINGS_FILE = "settings.yaml"
WATCH_S = 1.0
DEMO_SETTINGS = """\
# What `multilink up` builds, trains and promotes; the keys are described in orchestration/config.py.
lake: lake
is_running: true          # schedules and sensors start by themselves
sensor_interval_s: 15
datasets:
  - name: diy
    recorded_web: web     # served while a build runs; `make posts` adds posts to it
    cron: "*/15 * * * *"  # the real web: weekly
    objectives: [nostruct, cross-document]
    train_recipe: tiny
"""


def up(
    workspace: Annotated[Path, typer.Option(help="Folder that everything is kept in.")] = Path("workspace"),
    port: Annotated[int | None, typer.Option(help="Of Dagster's page; 0: any free one.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="Of MLflow's page; 0: any free one.")] = None,
) -> None:
    """Start Dagster and MLflow here, with schedules and sensors, and keep them running until Ctrl-C."""
    from orchestration.config import SETTINGS_VARIABLE, load_settings
    from orchestration.dagster.recovery import held_runs, settle
    from orchestration.local.services import (
        HOST,
        choose_ports,
        environment,
        make_services,
        mlflow_page,
        write_dagster_home,
    )
    from orchestration.local.supervisor import Supervisor

    console = Console()
    home = workspace.absolute()
    with _alone(home):
        file = prepare(home)
        settings = load_settings({SETTINGS_VARIABLE: str(file)})
        ports = choose_ports(port, mlflow_port)
        page = mlflow_page(settings, ports)
        dagster_home = write_dagster_home(home, ports)
        left = held_runs(dagster_home)
        mark = f"{os.getpid()}-{os.urandom(8).hex()}"
        supervisor = Supervisor(
            make_services(dagster_home, settings, ports),
            environment(dagster_home, file, page, mark=mark),
            home / "logs",
            console.say,
            on_restart=partial(_settle_with_code, dagster_home),
        )
        with _ends_on_signals(), supervisor.running():
            settle(dagster_home, left)
            console.summarise(
                [
                    f"Dagster  http://{HOST}:{ports.dagster}/asset-groups?partition={settings.datasets[0].name}",
                    f"MLflow   {page}",
                    f"settings, lake and logs in {home}; Ctrl-C ends everything",
                    "from sources to a promotion: on Dagster's page, Materialize all, then Launch 1 run",
                ],
                {},
            )
            while True:
                time.sleep(WATCH_S)
                supervisor.watch()


def prepare(workspace: Path) -> Path:
    """Return the workspace's settings file; a new workspace gets the demo's, and a copy of the recorded web."""
    from orchestration.demo.recorded_web import recording_at

    file = workspace / SETTINGS_FILE
    if not file.exists():
        if not (workspace / "web").exists():
            shutil.copytree(recording_at(), workspace / "web.part", dirs_exist_ok=True)
            (workspace / "web.part").rename(workspace / "web")
        file.write_text(DEMO_SETTINGS, encoding="utf-8")
    return file


def _settle_with_code(dagster_home: Path, service: Service) -> Callable[[], None]:
    """Have the runs that ended with the code server started again, once it is there again."""
    from orchestration.dagster.recovery import held_runs, settle

    left = held_runs(dagster_home) if service.name == "code" else []
    return partial(settle, dagster_home, left)


@contextlib.contextmanager
def _alone(workspace: Path) -> Iterator[None]:
    """Hold a workspace, so that no second `up` works in it."""
    workspace.mkdir(parents=True, exist_ok=True)
    with (workspace / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise UsageError(f"--workspace {workspace}: another multilink up runs there") from problem
        yield


@contextlib.contextmanager
def _ends_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP what Ctrl-C is: an interrupt that ends everything in order."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
