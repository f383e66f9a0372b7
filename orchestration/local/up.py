"""`multilink up`: Dagster, MLflow and the pages on this machine, everything registered, until Ctrl-C.

The code server is a process of its own, so that neither the end of the daemon nor that of the page touches a run.
Everything they keep is in the workspace:

    settings.yaml      what is built, when, and where (orchestration.config)
    lake/, mlflow.db   data sets, links, indexes, reports, decisions; runs and models
    dagster/           dagster.yaml, workspace.yaml, Dagster's own record (SQLite)
    logs/              what each process printed

Without settings in the workspace, the demo's are written there: the data set `diy` from a copy of the recorded web, to
which posts can be added, trained by the closed form, and by `tiny` to compare with.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestration.config import PAGE_VARIABLE, SETTINGS_VARIABLE, Settings, load_settings
from orchestration.demo.recorded_web import recording_at
from orchestration.local.supervisor import HOST, MARK_VARIABLE, Service, Supervisor, end_marked
from orchestration.project import remember
from schemas.lake import Lake
from schemas.messages import Say, UsageError, as_arguments
from training.mlflow.stored import is_missing

WATCH_S = 1.0
DAGSTER_PORT, MLFLOW_PORT, PAGES_PORT = 3000, 5000, 8090
CODE, WEB = "code", "web"
RUNS = "/#/experiments/1/runs?workflowType=machine_learning"  # the page of runs, of the first experiment
DEMO_SETTINGS = """\
# What `multilink up` builds, trains and promotes; the keys are described in orchestration/config.py.
# Builds scrape the copy of the recorded web in the folder `web`, while it is there; `make posts` adds posts to it.
lake: lake
is_running: true          # schedules and sensors start by themselves
sensor_interval_s: 15
datasets:
  - name: diy
    cron: "*/15 * * * *"  # the real web: weekly
    objectives: [nostruct, cross-document, closed-form]
    train_recipe: tiny
"""
DAGSTER_SETTINGS = """\
telemetry: {enabled: false}
nux: {enabled: false}
freshness: {enabled: true}
run_queue: {dequeue_interval_seconds: 1}
concurrency:
  pools: {default_limit: 1, granularity: run}  # one scraper and one training at a time; the next waits in the queue
  runs:
    max_concurrent_runs: 2
    tag_concurrency_limits:  # one run at a time about a data set
      - {key: dagster/partition, limit: 1, value: {applyLimitPerUniqueValue: true}}
run_monitoring:  # a run that a killed daemon was about to start is noticed, and started again
  enabled: true
  poll_interval_seconds: 10
  start_timeout_seconds: 90
  max_runtime_seconds: 259200  # three days: nothing is waited for without end
  free_slots_after_run_end_seconds: 5
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the processes listen, on this machine alone."""

    code: int
    dagster: int
    mlflow: int
    pages: int


def run_up(
    home: Path, *, dagster: int | None, mlflow: int | None, pages: int | None, say: Say
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Start the processes in a workspace, yield where they are, and keep them running until Ctrl-C.

    Args:
        home: folder that everything is kept in.
        dagster: port of its page; 0: any free one; None: the usual one where it is free.
        mlflow: likewise.
        pages: likewise.
        say: takes a line of progress.
    """
    from orchestration.dagster.recovery import restart_interrupted, unfinished_runs

    signal.signal(signal.SIGHUP, signal.default_int_handler)  # a closed terminal ends everything in order, as Ctrl-C
    with _alone(home) as mark:
        file = prepare(home)
        settings = load_settings({SETTINGS_VARIABLE: str(file)})
        if is_missing(settings.tracking_uri):  # a server that is killed as it makes a store cannot open it again
            from training.mlflow.runs import connect

            connect(settings.tracking_uri)
        for dataset in (each for each in settings.datasets if each.train_settings):
            dataset.check_training()
        ports = choose_ports(dagster, mlflow, pages, say=say)
        page = mlflow_page(settings, ports)
        dagster_home = write_dagster_home(home, ports)
        unfinished = unfinished_runs(dagster_home)
        services, variables = make_services(dagster_home, settings, ports), environment(dagster_home, file, page, mark)
        supervisor = Supervisor(services, variables, home / "logs", say)
        with supervisor.running():
            restart_interrupted(dagster_home, unfinished)
            remember(home, Path.cwd(), lake=settings.lake, tracking_uri=settings.tracking_uri, say=say)
            yield (
                [
                    f"Dagster  http://{HOST}:{ports.dagster}/asset-groups?partition={settings.datasets[0].name}",
                    f"MLflow   {page}{RUNS}",
                    f"pages    http://{HOST}:{ports.pages}",
                    f"settings, lake and logs in {home}; Ctrl-C ends everything",
                    "from sources to a promotion: on Dagster's page, Materialize all, then Launch 1 run",
                ],
                {},
            )
            while True:
                time.sleep(WATCH_S)
                for service in supervisor.watch():
                    if service.name == CODE:  # its runs ended with it, and no new one has begun yet
                        unfinished = unfinished_runs(dagster_home)
                        supervisor.await_port(service)
                        restart_interrupted(dagster_home, unfinished)


def prepare(workspace: Path) -> Path:
    """Return the workspace's settings file; a new workspace gets the demo's, and a copy of the recorded web."""
    file = workspace / "settings.yaml"
    if not file.exists():
        if not (workspace / WEB).exists():
            shutil.copytree(recording_at(), workspace / "web.part", dirs_exist_ok=True).rename(workspace / WEB)
        file.write_text(DEMO_SETTINGS, encoding="utf-8")
    return file


def choose_ports(dagster: int | None, mlflow: int | None, pages: int | None = 0, *, say: Say) -> Ports:
    """Return the given ports, else the usual ones where they are free, else free ones, which is said.

    Raises:
        UsageError: a given port is taken.
    """
    return Ports(
        code=_port("", 0, 0, say),
        dagster=_port("--port", dagster, DAGSTER_PORT, say),
        mlflow=_port("--mlflow-port", mlflow, MLFLOW_PORT, say),
        pages=_port("--pages-port", pages, PAGES_PORT, say),
    )


def write_dagster_home(workspace: Path, ports: Ports) -> Path:
    """Write Dagster's own settings into the workspace, and return its home."""
    home = workspace / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(DAGSTER_SETTINGS, encoding="utf-8")
    server = f"grpc_server: {{host: {HOST}, port: {ports.code}, location_name: multilink}}"
    (home / "workspace.yaml").write_text(f"load_from:\n  - {server}\n", encoding="utf-8")
    return home


def mlflow_page(settings: Settings, ports: Ports) -> str:
    """Return where MLflow's page is: as in the settings, else on the server they name, or on the one started here."""
    return settings.mlflow_page or (settings.tracking_uri if _has_server(settings) else f"http://{HOST}:{ports.mlflow}")


def make_services(home: Path, settings: Settings, ports: Ports) -> list[Service]:
    """Return the processes in the order they start; MLflow's is among them unless the settings name a server."""
    workspace, python = str(home / "workspace.yaml"), (sys.executable, "-m")
    module = "orchestration.local.recorded" if (home.parent / WEB).is_dir() else "orchestration.dagster.definitions"
    code = ("dagster", "api", "grpc", "-m", module, "-h", HOST, "-p", str(ports.code))
    page = ("dagster_webserver", "-w", workspace, "-h", HOST, "-p", str(ports.dagster))
    daemon = (str(Path(sys.executable).with_name("dagster-daemon")), "run", "-w", workspace)
    own = mlflow_service(settings.tracking_uri, artifacts=home.parent / "mlartifacts", port=ports.mlflow)
    return [
        *([] if _has_server(settings) else [own]),
        Service(name=CODE, command=(*python, *code), port=ports.code),
        Service(name="webserver", command=(*python, *page), port=ports.dagster),
        Service(name="daemon", command=daemon, needs_others=True),
        pages_service(settings, workspace=home.parent, port=ports.pages),
    ]


def pages_service(settings: Settings, *, workspace: Path, port: int) -> Service:
    """Return the newsroom's pages; what people decide is kept in a local lake, else in the workspace."""
    if local := Lake.at(settings.lake).root.local:
        local.mkdir(parents=True, exist_ok=True)
    store = () if local else ("--store", f"sqlite:///{workspace / 'pages.sqlite'}")
    where = ("--lake", settings.lake, *as_arguments("--tracking-uri", settings.tracking_uri), *store)
    command = (sys.executable, "-m", "orchestration", "pages", *where, "--host", HOST, "--port", str(port))
    variables = {"MLFLOW_TRACKING_URI": settings.tracking_uri}
    return Service(name="pages", command=command, port=port, needs_others=True, environment=variables)


def mlflow_service(store: str, *, artifacts: Path, port: int) -> Service:
    """Return an MLflow server on a store, which keeps artefacts in a folder."""
    stores = (*as_arguments("--backend-store-uri", store), "--artifacts-destination", str(artifacts))
    where = ("--host", HOST, "--port", str(port), "--workers", "1")
    command = (sys.executable, "-m", "mlflow", "server", *stores, *where)
    return Service(name="mlflow", command=command, port=port, environment={"MLFLOW_BACKEND_STORE_URI": store})


def environment(home: Path, settings_file: Path, page: str, mark: str) -> dict[str, str]:
    """Return what the processes find in their environment beside what this one has; `page` is MLflow's."""
    return {
        "DAGSTER_HOME": str(home),
        SETTINGS_VARIABLE: str(settings_file),
        PAGE_VARIABLE: page,
        MARK_VARIABLE: mark,
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # else eight processes of 240 MB that nothing here uses
    }


def _has_server(settings: Settings) -> bool:
    """Return whether MLflow's store is a server that runs elsewhere."""
    return settings.tracking_uri.startswith(("http://", "https://"))


def _port(option: str, given: int | None, usual: int, say: Say) -> int:
    """Return the given port, or where none is, the usual one if it is free, else any free one."""
    found = _free_port(usual if given is None else given)
    if found is None and given:
        raise UsageError(f"{option} {given}: another process listens there")
    if found is None:
        found = _free_port(0)
        say(f"another process listens on port {usual}: {found} in its place; {option} names one")
    return found or 0


def _free_port(port: int) -> int | None:
    """Return a port that is free, any for 0, or None where it is taken."""
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        found: int = probe.getsockname()[1]
        return found
    return None


@contextlib.contextmanager
def _alone(workspace: Path) -> Iterator[str]:
    """Hold a workspace, so that no second `up` works in it, and give its mark; what a killed one left is ended."""
    workspace.mkdir(parents=True, exist_ok=True)
    with (workspace / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise UsageError(f"--workspace {workspace}: another multilink up runs there") from problem
        lock.seek(0)
        if left := lock.read():
            end_marked(left)
        lock.truncate(0)
        lock.write(mark := f"{os.getpid()}-{os.urandom(8).hex()}")
        lock.flush()
        yield mark
