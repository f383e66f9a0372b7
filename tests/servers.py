"""Servers that tests start on loopback and end: any program that listens, S3, MLflow, and PostgreSQL.

PostgreSQL is Debian's package `postgresql`; without it its tests are skipped. It refuses to run as root, so root starts
it as `nobody`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

START_S, WAIT_S = 240.0, 600.0


OBJECT_STORE = """
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

application = DomainDispatcherApplication(create_backend_app)
for _ in sys.stdin:
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
"""


@contextmanager
def object_stores() -> Iterator[Callable[[], int]]:
    """Run an S3 server; give a function that empties it and returns a port of it that nothing was asked at before."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", OBJECT_STORE], text=True, **pipes) as process:

        def empty() -> int:
            process.stdin.write("\n")
            process.stdin.flush()
            port = int(process.stdout.readline())
            urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")).close()
            return port

        try:
            yield empty
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], what: str = "it comes about", *, timeout_s: float = WAIT_S) -> Any:
    """Ask again and again; return what a condition gives, once it gives something."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain until {what}"
        time.sleep(0.1)
    return found


def children_of(words: str, parent: int | None = None) -> list[int]:
    """Return the processes that a process has started, by default this one, whose command holds some words."""
    threads = Path("/proc", str(parent or os.getpid()), "task").glob("*/children")
    return [pid for each in threads for pid in map(int, each.read_text().split()) if words in command_of(pid)]


def command_of(pid: int) -> str:
    """Return a process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def server(command: list[str], port: int, *, user: str | None = None) -> Iterator[None]:
    """Run a server until the body ends, from the moment it answers."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, user=user, cwd="/", stdout=log, stderr=log)
        try:
            wait_for(lambda: process.poll() is not None or _answers(port), f"{command[0]} answers", timeout_s=START_S)
            if process.poll() is not None:
                log.seek(0)
                pytest.fail(f"{command[0]} has ended: {log.read()}")
            yield
        finally:
            process.send_signal(signal.SIGINT)  # to PostgreSQL: now, whoever is still connected
            process.wait(timeout=START_S)


@contextmanager
def mlflow_server(folder: Path, template: Path, **environment: str) -> Iterator[tuple[str, Any]]:
    """Run an MLflow server over a copy of a store, as `multilink up` does; give its address and what keeps it."""
    from orchestration.local.supervisor import MARK_VARIABLE, Supervisor
    from orchestration.local.up import mlflow_service

    port = free_port()
    shutil.copy(template, folder / "mlflow.db")
    service = mlflow_service(f"sqlite:///{folder}/mlflow.db", artifacts=folder / "artifacts", port=port)
    own = {MARK_VARIABLE: os.urandom(8).hex(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    keeper = Supervisor([service], own | environment, folder / "logs", print)
    with keeper.running():
        yield f"http://127.0.0.1:{port}", keeper


@contextmanager
def beam_services(folder: Path, workers: int) -> Iterator[list[str]]:
    """Run Beam's job service and a pool of its workers; give the options of a build by them."""
    from orchestration.local.supervisor import MARK_VARIABLE, Service, Supervisor

    jobs, pool = free_port(), free_port()
    service = [sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main", f"--port={jobs}"]
    workers_ = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"]
    services = [
        Service(name="beam-jobs", command=tuple(service), port=jobs),
        Service(name="beam-pool", command=tuple(workers_), port=pool),
    ]
    # The pool starts plain `python`: this environment's has to be the first on its PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {MARK_VARIABLE: os.urandom(8).hex(), "PATH": path, "TMPDIR": str(folder)}
    with Supervisor(services, own, folder / "logs", print).running():
        yield [
            f"--job_endpoint=localhost:{jobs}",
            f"--job_server_timeout={30 * 86_400}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool}",
            f"--sdk_worker_parallelism={workers}",
            f"--direct_num_workers={workers}",
        ]


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a fresh PostgreSQL and give the URI of its database."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="multilink-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if user is not None:
            shutil.chown(folder, user)
        data, port = f"{folder}/data", free_port()
        options = ["-U", "mlflow", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        initialise = [str(programs / "initdb"), "-D", data, *options]
        subprocess.run(initialise, user=user, cwd="/", check=True, capture_output=True)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        command = [str(programs / "postgres"), "-D", data, "-p", str(port), "-k", folder, *settings]
        with server(command, port, user=user):
            ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            wait_for(lambda: subprocess.run(ready, check=False).returncode == 0)  # it answers that it is starting up
            yield f"postgresql://mlflow@127.0.0.1:{port}/postgres"


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's server programs, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
