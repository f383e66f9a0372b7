"""The processes of `multilink up`: Dagster's code server, daemon and page, and MLflow's page, on embedded defaults.

The code server is a process of its own, so that neither the end of the daemon nor that of the page touches a run.
Everything they keep is in the workspace:

    settings.yaml      what is built, when, and where (orchestration.config)
    lake/, mlflow.db   data sets, links, reports; runs and models
    dagster/           dagster.yaml, workspace.yaml, Dagster's own record (SQLite)
    logs/              what each process printed
"""

from __future__ import annotations

import contextlib
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestration.config import PAGE_VARIABLE, SETTINGS_VARIABLE, Settings
from orchestration.local.leftovers import MARK_VARIABLE
from schemas.errors import UsageError

HOST = "127.0.0.1"
DAGSTER_PORT, MLFLOW_PORT = 3000, 5000
RUNS_AT_ONCE, RUN_RETRIES = 2, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process that is kept running.

    Attributes:
        name: of its log.
        module: Python module that is run as a program.
        arguments: its arguments.
        port: it listens on, or 0.
        after: name of the service that has to listen before it starts and to outlive it, or nothing.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    port: int = 0
    after: str = ""

    def command(self, parent: int) -> list[str]:
        """Return the command that ends with process `parent`."""
        return [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(parent), self.module, *self.arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the processes listen, on this machine alone."""

    code: int
    dagster: int
    mlflow: int


def choose_ports(dagster: int | None, mlflow: int | None) -> Ports:
    """Return the ports asked for, else the usual ones where they are free, else free ones.

    Raises:
        UsageError: a port that was asked for is taken.
    """
    for name, port in (("--port", dagster), ("--mlflow-port", mlflow)):
        if port and not _is_free(port):
            raise UsageError(f"{name} {port}: another process listens there")
    usual = [
        given if given else (port if given is None and _is_free(port) else 0)
        for given, port in ((dagster, DAGSTER_PORT), (mlflow, MLFLOW_PORT))
    ]
    free = _free_ports(3)
    return Ports(code=free[0], dagster=usual[0] or free[1], mlflow=usual[1] or free[2])


def write_dagster_home(workspace: Path, ports: Ports) -> Path:
    """Write Dagster's own settings into the workspace, and return its home."""
    home = workspace / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    instance = {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "run_coordinator": {
            "module": "dagster._core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        },
        "concurrency": {
            "pools": {"default_limit": 1, "granularity": "op"},  # one scraper and one training at a time
            "runs": {"max_concurrent_runs": RUNS_AT_ONCE},
        },
        "run_monitoring": {  # a run that a killed daemon was about to start is noticed, and started again
            "enabled": True,
            "poll_interval_seconds": 10,
            "start_timeout_seconds": 90,
            "free_slots_after_run_end_seconds": 5,
        },
        "run_retries": {"enabled": True, "max_retries": RUN_RETRIES, "retry_on_asset_or_op_failure": False},
    }
    (home / "dagster.yaml").write_text(yaml.safe_dump(instance, sort_keys=False), encoding="utf-8")
    server = {"host": HOST, "port": ports.code, "location_name": "multilink"}
    (home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
    return home


def mlflow_page(settings: Settings, ports: Ports) -> str:
    """Return where MLflow's page is: where the settings say, on the server they name, or on the one started here."""
    own = settings.tracking_uri if has_server(settings) else f"http://{HOST}:{ports.mlflow}"
    return settings.mlflow_page or own


def has_server(settings: Settings) -> bool:
    """Return whether MLflow's store is a server that somebody else keeps running."""
    return settings.tracking_uri.startswith(("http://", "https://"))


def mlflow_service(store: str, *, artifacts: Path, port: int) -> Service:
    """Return an MLflow server on a store, which keeps artefacts in a folder."""
    return Service(
        name="mlflow",
        module="mlflow",
        arguments=(
            *("server", "--backend-store-uri", store, "--artifacts-destination", str(artifacts)),
            *("--host", HOST, "--port", str(port), "--workers", "1"),
        ),
        port=port,
    )


def make_services(home: Path, settings: Settings, ports: Ports) -> list[Service]:
    """Return the processes in the order they start; MLflow's is among them unless the settings name a server."""
    workspace = str(home / "workspace.yaml")
    own = mlflow_service(settings.tracking_uri, artifacts=home.parent / "mlartifacts", port=ports.mlflow)
    return [
        *([] if has_server(settings) else [own]),
        Service(
            name="code",
            module="dagster",
            arguments=("api", "grpc", "-m", "orchestration.dagster.definitions", "-h", HOST, "-p", str(ports.code)),
            port=ports.code,
        ),
        Service(
            name="webserver",
            module="dagster_webserver",
            arguments=("-w", workspace, "-h", HOST, "-p", str(ports.dagster)),
            port=ports.dagster,
        ),
        Service(name="daemon", module="dagster._daemon", arguments=("run", "-w", workspace), after="code"),
    ]


def environment(home: Path, settings_file: Path, page: str, *, mark: str) -> dict[str, str]:
    """Return what the processes find in their environment beside what this one has; `page` is MLflow's."""
    return {
        "DAGSTER_HOME": str(home),
        SETTINGS_VARIABLE: str(settings_file),
        PAGE_VARIABLE: page,
        MARK_VARIABLE: mark,
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # else eight processes of 240 MB that nothing here uses
    }


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
