"""A cluster that runs: its home made ready, its services started stage by stage, and all of them answering."""

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import psycopg
from botocore.exceptions import ClientError

from orchestration.local.supervisor import MARK_VARIABLE, Supervisor
from schemas.messages import BuildError, UsageError

from . import deployment, engines
from .deployment import BUCKETS, DATABASES, clients, stages, write_settings
from .plan import Plan, Secrets, networked
from .programs import Engine, find_programs

ANSWER_TIMEOUT_S = 240.0
_POLL_S = 0.5
_WATCHING = threading.Lock()
_SECRETS = "secrets.json"
_QUIET = {
    "PYTHONUNBUFFERED": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster.

    Attributes:
        supervisors: of its services, stage by stage.
    """

    plan: Plan
    supervisors: tuple[Supervisor, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Return what a command needs in its environment to work on it."""
        return clients(self.plan)

    @property
    def beam_options(self) -> list[str]:
        """Return the options of `multilink build --runner`."""
        return engines.beam_options(self.plan)

    def watch(self) -> None:
        """Start again what has ended; several threads may watch."""
        with _WATCHING:
            for supervisor in self.supervisors:
                supervisor.watch()

    def supervisor_of(self, name: str) -> Supervisor:
        """Return the supervisor of a service."""
        return next(each for each in self.supervisors if name in {service.name for service in each.services})

    def await_workers(self) -> None:
        """Wait until every page answers, and every worker has found its master.

        Raises:
            BuildError: they do not in time; the line names which.
        """
        _await(self)

    def addresses(self) -> list[str]:
        """Return a line for every program that listens."""
        services = [service for supervisor in self.supervisors for service in supervisor.services]
        return [f"{each.name:18} {each.host}:{each.port}" for each in services if each.port]


@contextlib.contextmanager
def running(home: Path, *, engine: Engine, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Run a cluster while the block lasts; what it kept stays in `home`, and the next one goes on with it.

    Raises:
        UsageError: the machine lacks a program; one line names all that it lacks.
        BuildError: a service ended, or does not answer in time.
    """
    programs = find_programs(engine, say)
    user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups") if os.geteuid() == 0 else ()
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(networked(deployment.MACHINES))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mlc-", ignore_cleanup_errors=True)))
        plan = Plan(
            engine=engine,
            home=home,
            scratch=scratch,
            machines=machines,
            programs=programs,
            secrets=_secrets(home),
            user=user,
        )
        _prepare(plan)
        write_settings(plan)
        supervisors: list[Supervisor] = []
        for number, services in enumerate(stages(plan)):
            say(f"starting {', '.join(service.name for service in services)}")
            mark = {MARK_VARIABLE: f"cluster-{os.getpid()}-{number}-{os.urandom(4).hex()}"}
            supervisor = Supervisor(services, _QUIET | mark, home / "logs", say)
            stack.enter_context(supervisor.running())
            supervisors.append(supervisor)
            if number == 0:
                _fill(plan)
        cluster = Cluster(plan=plan, supervisors=tuple(supervisors))
        cluster.await_workers()
        yield cluster


def _secrets(home: Path) -> Secrets:
    """Return the secrets of a home; a new one gets its own. Only its owner reads the file."""
    file = home / _SECRETS
    home.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        made = Secrets(
            s3_key=f"multilink{secrets.token_hex(4)}",
            s3_secret=secrets.token_hex(20),
            postgres_password=secrets.token_hex(20),
            ray_token=secrets.token_hex(20),
        )
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(dataclasses.asdict(made), stream)
    return Secrets(**json.loads(file.read_text(encoding="utf-8")))


def _prepare(plan: Plan) -> None:
    """Make the folders of logs and of the database."""
    (plan.home / "logs").mkdir(exist_ok=True)
    data = plan.home / "postgres"
    if (data / "PG_VERSION").exists():
        (data / "postmaster.pid").unlink(missing_ok=True)  # of a cluster that was killed: nothing of it is left
        return
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    if plan.user:
        closed = [str(folder) for folder in data.parents if not folder.stat().st_mode & 0o001]
        if closed:
            raise UsageError(f"{closed[0]}: PostgreSQL does not run as root, and no other user may enter this folder")
        shutil.chown(data, "nobody", "nogroup")
    with tempfile.NamedTemporaryFile("w", dir="/tmp") as password:  # the password is on no command line
        password.write(plan.secrets.postgres_password)
        password.flush()
        if plan.user:
            shutil.chown(password.name, "nobody", "nogroup")
        options = ["-U", "multilink", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", f"--pwfile={password.name}"]
        initialise = [*plan.user, plan.programs.initdb, "-D", str(data), *options]
        done = subprocess.run(initialise, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"initdb: {done.stderr.strip().splitlines()[-1]}")
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write("host all all samenet scram-sha-256\nhost all all 127.0.0.0/8 scram-sha-256\n")


def _fill(plan: Plan) -> None:
    """Make the buckets and the databases that the other services need."""
    own = clients(plan)
    client = boto3.client(
        "s3",
        endpoint_url=own["AWS_ENDPOINT_URL"],
        aws_access_key_id=own["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=own["AWS_SECRET_ACCESS_KEY"],
        region_name=own["AWS_DEFAULT_REGION"],
    )
    for bucket in BUCKETS:
        try:
            client.head_bucket(Bucket=bucket)
        except ClientError:
            client.create_bucket(Bucket=bucket)
    with psycopg.connect(deployment.database_uri(plan, "postgres"), autocommit=True) as connection:
        known = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        for name in set(DATABASES) - known:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())


def _await(cluster: Cluster) -> None:
    plan, deadline = cluster.plan, time.monotonic() + ANSWER_TIMEOUT_S
    head = plan.machines["beam-head"].address
    nodes = len(engines.NODES)
    questions: dict[str, Callable[[], bool]] = {
        "mlflow": lambda: bool(_ask(plan.url("tracking", deployment.MLFLOW) + "/health")),
        "dagster": lambda: bool(_ask(plan.url("dagster", deployment.DAGSTER) + "/server_info")),
        "ray": lambda: _ray_nodes(plan) == 1 + nodes,
        "flink": lambda: json.loads(_ask(f"http://{head}:{engines.FLINK_PAGE}/overview"))["taskmanagers"] == nodes,
        "spark": lambda: json.loads(_ask(f"http://{head}:{engines.SPARK_PAGE}/json/"))["aliveworkers"] == nodes,
    }
    del questions[next(other for other in Engine if other is not plan.engine)]
    while questions:
        for name in [name for name, is_there in questions.items() if _holds(is_there)]:
            del questions[name]
        cluster.watch()
        if questions and time.monotonic() > deadline:
            raise BuildError(f"{', '.join(questions)}: no answer, or not all workers, in {ANSWER_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _holds(is_there: Callable[[], bool]) -> bool:
    try:
        return is_there()
    except (OSError, ValueError, KeyError, urllib.error.URLError):
        return False


def _ray_nodes(plan: Plan) -> int:
    answer = _ask(plan.url("ray-head", deployment.RAY_JOBS) + "/nodes?view=summary", plan.secrets.ray_token)
    summary = json.loads(answer)["data"]["summary"]
    return sum(node["raylet"]["state"] == "ALIVE" for node in summary)


def _ask(url: str, token: str = "") -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=5) as answer:
        body: bytes = answer.read()
    return body
