"""What runs where: the description of the cluster, and the settings that Dagster finds in its home.

    machine        programs                                                    ports
    store          versitygw, an S3 server over a folder                       7070
    database       PostgreSQL: MLflow's tables, Dagster's record               5432
    web            the recorded web, in place of the real one                  8080
    tracking       MLflow's server, on both                                    5000
    beam-head      Flink's JobManager or Spark's master; Beam's job server     8081 or 7077; 8099
    beam-1, beam-2 a TaskManager or a Spark worker; a Beam worker pool         50000
    ray-head       Ray's head                                                  6379, 10001, 8265
    ray-1, ray-2   a Ray node with a processor each
    dagster        code server, webserver, daemon                              4000, 3000

A worker pool is looked for on `localhost`: beside its TaskManager, as in a pod of `infra/flink/flink.yaml`. Without
separate networks one pool serves both.

Stages start one after the other: what is in a stage needs what the stages before it listen with.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestration.config import PAGE_VARIABLE, SETTINGS_VARIABLE
from orchestration.demo.recorded_web import dumps_of, recording_at, replay, web_settings
from orchestration.local.supervisor import Service
from training.promotions.keys import make_key

from .engines import beam_options, beam_services
from .plan import Plan

MACHINES = (
    "store", "database", "web", "tracking", "beam-head", "beam-1", "beam-2", "ray-head", "ray-1", "ray-2", "dagster",
)  # fmt: skip
S3, POSTGRES, WEB, MLFLOW = 7070, 5432, 8080, 5000
RAY, RAY_CLIENT, RAY_JOBS = 6379, 10001, 8265
CODE, DAGSTER = 4000, 3000
BUCKETS = ("lake", "mlflow")
DATABASES = ("mlflow", "dagster")
REGION = "us-east-1"
OBJECT_STORE_BYTES = 80 << 20  # of a Ray node; nothing but small messages goes through it

Stage = tuple[Service, ...]


def stages(plan: Plan) -> list[Stage]:
    """Return the services of a cluster, in stages."""
    return [
        (object_store(plan), database(plan), recorded_web(plan)),
        (mlflow(plan), ray_head(plan), *beam_services(plan, clients(plan))),
        tuple(ray_node(plan, f"ray-{number}") for number in (1, 2)),
        dagster(plan),
    ]


KEY = "key.pem"  # in the cluster's home: promotions are signed with it


def clients(plan: Plan) -> dict[str, str]:
    """Return what a command finds in its environment to work on the cluster."""
    return {
        "AWS_ACCESS_KEY_ID": plan.secrets.s3_key,
        "AWS_SECRET_ACCESS_KEY": plan.secrets.s3_secret,
        "AWS_ENDPOINT_URL": plan.url("store", S3),
        "AWS_DEFAULT_REGION": REGION,
        "MLFLOW_S3_ENDPOINT_URL": plan.url("store", S3),
        "MLFLOW_TRACKING_URI": plan.url("tracking", MLFLOW),
        "MULTILINK_KEY": str(plan.home / KEY),
        "MULTILINK_LAKE": "s3://lake/lake",
        "RAY_ADDRESS": plan.url("ray-head", RAY_CLIENT, "ray"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": plan.secrets.ray_token,
    }


def object_store(plan: Plan) -> Service:
    address = f"{plan.machines['store'].address}:{S3}"
    log = ("--access-log", str(plan.home / "logs" / "s3-requests.log"))
    folder = plan.home / "store"
    folder.mkdir(exist_ok=True)
    return plan.service(
        "s3",
        "store",
        (plan.programs.object_store, "--port", address, "--quiet", "--keep-alive", *log, "posix", str(folder)),
        S3,
        {"ROOT_ACCESS_KEY": plan.secrets.s3_key, "ROOT_SECRET_KEY": plan.secrets.s3_secret},
    )


def database(plan: Plan) -> Service:
    address, data = plan.machines["database"].address, plan.home / "postgres"
    settings = {"listen_addresses": address, "unix_socket_directories": "", "shared_buffers": "16MB"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = (*plan.user, plan.programs.postgres, "-D", str(data), "-p", str(POSTGRES), *options)
    return plan.service("postgres", "database", command, POSTGRES)


def recorded_web(plan: Plan) -> Service:
    address = plan.machines["web"].address
    where = ("--recording", str(recording_at()), "--host", address, "--port", str(WEB))
    return plan.service("web", "web", (sys.executable, str(replay() / "server.py"), *where), WEB)


def mlflow(plan: Plan) -> Service:
    where = ("--host", plan.machines["tracking"].address, "--port", str(MLFLOW), "--workers", "1")
    return plan.service(
        "mlflow",
        "tracking",
        (sys.executable, "-m", "mlflow", "server", "--artifacts-destination", "s3://mlflow", *where),
        MLFLOW,
        clients(plan)
        | {
            "MLFLOW_BACKEND_STORE_URI": database_uri(plan, "mlflow"),
            "MLFLOW_SERVER_ALLOWED_HOSTS": f"{plan.machines['tracking'].address}:{MLFLOW}",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        },
    )


def ray_head(plan: Plan) -> Service:
    """Return the head: it schedules, and trains nothing itself."""
    address = plan.machines["ray-head"].address
    ports = ("--port", str(RAY), "--ray-client-server-port", str(RAY_CLIENT))
    page = ("--dashboard-host", address, "--dashboard-port", str(RAY_JOBS))
    return _ray(plan, "ray-head", ("--head", *ports, *page, "--num-cpus", "0"), RAY_JOBS)


def ray_node(plan: Plan, name: str) -> Service:
    head = f"{plan.machines['ray-head'].address}:{RAY}"
    return _ray(plan, name, ("--address", head, "--num-cpus", "1"))


def _ray(plan: Plan, name: str, options: Sequence[str], port: int = 0) -> Service:
    own = ("--node-ip-address", plan.machines[name].address, "--object-store-memory", str(OBJECT_STORE_BYTES))
    folder = ("--temp-dir", str(plan.scratch / name))
    program = str(Path(sys.executable).with_name("ray"))
    command = (program, "start", *options, *own, *folder, "--disable-usage-stats", "--block")
    gloo = {"GLOO_SOCKET_IFNAME": "eth0"} if plan.machines[name].is_separate else {}  # else by the machine's name
    environment = clients(plan) | gloo | {"RAY_ADDRESS": ""}
    return plan.service(name, name, command, port, environment)


def dagster(plan: Plan) -> Stage:
    """Return Dagster's processes: the code server drives the commands of a step, and reaches all that they need."""
    address, home = plan.machines["dagster"].address, plan.home / "dagster"
    python, workspace = (sys.executable, "-m"), ("-w", str(home / "workspace.yaml"))
    module = ("-m", "orchestration.dagster.definitions")
    environment = clients(plan) | {
        "DAGSTER_HOME": str(home),
        "DAGSTER_POSTGRES_URL": database_uri(plan, "dagster", "postgresql+psycopg2"),
        SETTINGS_VARIABLE: str(plan.home / "settings.yaml"),
        PAGE_VARIABLE: plan.url("tracking", MLFLOW),
    }
    code = (*python, "dagster", "api", "grpc", *module, "-h", address, "-p", str(CODE))
    page = (*python, "dagster_webserver", *workspace, "-h", address, "-p", str(DAGSTER))
    daemon = (str(Path(sys.executable).with_name("dagster-daemon")), "run", *workspace)
    return (
        plan.service("dagster-code", "dagster", code, CODE, environment),
        plan.service("dagster-webserver", "dagster", page, DAGSTER, environment),
        plan.service("dagster-daemon", "dagster", daemon, environment=environment),
    )


def database_uri(plan: Plan, name: str, scheme: str = "postgresql") -> str:
    """Return the address of a database, with the password: for an environment, never for a command."""
    at = f"{plan.machines['database'].address}:{POSTGRES}"
    return f"{scheme}://multilink:{plan.secrets.postgres_password}@{at}/{name}"


TRAIN_WORKERS = 2
SPLITS = "splits.val=0.25"  # of thirteen documents, a tenth, no model can be shown to be better than another
_DAGSTER: dict[str, Any] = {
    "telemetry": {"enabled": False},
    "nux": {"enabled": False},
    "storage": {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}},
    "concurrency": {"pools": {"default_limit": 1, "granularity": "run"}, "runs": {"max_concurrent_runs": 2}},
    "run_monitoring": {"enabled": True, "poll_interval_seconds": 10, "free_slots_after_run_end_seconds": 5},
    "run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False},
}


def web_of(plan: Plan) -> list[str]:
    """Return the settings of a `diy` build that scrapes the cluster's recorded web."""
    return [*web_settings(dumps_of(recording_at()), WEB, plan.machines["web"].address), SPLITS]


def write_settings(plan: Plan) -> None:
    """Write Dagster's home, the settings of the orchestration, and a key for promotions where there is none."""
    if not (plan.home / KEY).exists():
        make_key(plan.home / KEY)
    home = plan.home / "dagster"
    home.mkdir(exist_ok=True)
    code = {"host": plan.machines["dagster"].address, "port": CODE, "location_name": "multilink"}
    _write(home / "dagster.yaml", _DAGSTER)
    _write(home / "workspace.yaml", {"load_from": [{"grpc_server": code}]})
    own = {"name": "diy", "settings": web_of(plan), "train_recipe": "tiny"}
    settings = {
        "lake": clients(plan)["MULTILINK_LAKE"],
        "tracking_uri": plan.url("tracking", MLFLOW),
        "datasets": [own],
        "beam": {"runner": str(plan.engine), "options": beam_options(plan)},
        "ray": {"workers": TRAIN_WORKERS},  # Dagster drives them: RAY_ADDRESS leads to the cluster
    }
    _write(plan.home / "settings.yaml", settings)


def _write(file: Any, value: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
