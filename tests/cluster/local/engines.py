"""Flink or Spark, with Beam's job server and its worker pools: processes as `flink.yaml` describes them, by hand.

Flink's own scripts compute its memory. Without them each part of it is named here.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestration.local.supervisor import Service

from .plan import Plan
from .programs import Engine

FLINK_PAGE, FLINK_RPC, FLINK_BLOBS = 8081, 6123, 6124
SPARK_MASTER, SPARK_PAGE = 7077, 8082
JOBS, ARTIFACTS, EXPANSION = 8099, 8098, 8097
POOL = 50000
NODES = ("beam-1", "beam-2")
# Of a Java that keeps its own packages to itself, what Flink and Spark reach into.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch",
    "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_FLINK = {
    "jobmanager.rpc.port": FLINK_RPC,
    "blob.server.port": FLINK_BLOBS,
    "rest.port": FLINK_PAGE,
    "parallelism.default": len(NODES),
    # A machine that does all of this at once is slow to answer: that is no failure.
    "pekko.ask.timeout": "120 s",
    "pekko.startup-timeout": "120 s",
    "heartbeat.timeout": 60_000,
    "heartbeat.interval": 5_000,
    # A TaskManager that is gone is waited for, and what it did is done again. Failures of one wait count once, and none
    # counts after half an hour of work: a build of days outlives machine after machine, a mistake ends it in minutes.
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "5 s",
    "restart-strategy.exponential-delay.backoff-multiplier": 1.2,
    "restart-strategy.exponential-delay.max-backoff": "30 s",
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": 10,
    "restart-strategy.exponential-delay.reset-backoff-threshold": "30 min",
    "slot.request.timeout": 180_000,
}
_TASK_MANAGER = {
    "taskmanager.numberOfTaskSlots": 1,
    "taskmanager.cpu.cores": 1.0,
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "192m",
    "taskmanager.memory.network.max": "192m",
    "taskmanager.network.sort-shuffle.min-buffers": 64,  # of 32 KB for each result: a build has many small ones
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.jvm-metaspace.size": "192m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
}


def beam_services(plan: Plan, environment: Mapping[str, str]) -> list[Service]:
    """Return the engine, the job server and the worker pools; `environment` is what Python workers need."""
    engine = _flink if plan.engine is Engine.FLINK else _spark
    is_separate = plan.machines[NODES[0]].is_separate
    pools = [_pool(plan, node, environment) for node in (NODES if is_separate else NODES[:1])]
    return [*engine(plan), _job_server(plan), *pools]


def beam_options(plan: Plan) -> list[str]:
    """Return the options with which `multilink build --runner flink` or `spark` runs here."""
    head = plan.machines["beam-head"].address
    own = {
        Engine.FLINK: [f"--flink_master={head}:{FLINK_PAGE}", "--flink_version=1.19", f"--parallelism={len(NODES)}"],
        Engine.SPARK: [f"--spark_master_url=spark://{head}:{SPARK_MASTER}"],
    }
    pool = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{POOL}"]
    pool.append("--environment_cache_millis=600000")  # else a worker ends with its step, and each begins a new one
    return [f"--job_endpoint={head}:{JOBS}", *pool, *own[plan.engine]]


def _flink(plan: Plan) -> list[Service]:
    head = plan.machines["beam-head"].address
    configuration = plan.home / "flink"
    configuration.mkdir(exist_ok=True)
    (configuration / "config.yaml").write_text(f"jobmanager.rpc.address: {head}\n", encoding="utf-8")
    master = {"rest.address": head, "rest.bind-address": head}  # it asks itself for blobs on localhost
    manager = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
    cluster = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    return [
        _flink_service(plan, "jobmanager", "beam-head", cluster, settings=master, port=FLINK_PAGE),
        *(
            _flink_service(plan, f"taskmanager-{number}", node, manager, settings=_TASK_MANAGER | _at(plan, node))
            for number, node in enumerate(NODES, 1)
        ),
    ]


def _flink_service(
    plan: Plan, name: str, machine: str, main: str, *, settings: Mapping[str, object], port: int = 0
) -> Service:
    every = {**_FLINK, "io.tmp.dirs": plan.scratch, **settings}
    options = [part for key, value in every.items() for part in ("-D", f"{key}={value}")]
    jars, plugins = plan.programs.engine / "lib", str(plan.programs.engine / "plugins")
    java = _java(plan, 400, f"{jars}/*", main, "--configDir", str(plan.home / "flink"))
    return plan.service(name, machine, (*java, *options), port, {"FLINK_PLUGINS_DIR": plugins})


def _at(plan: Plan, node: str) -> dict[str, object]:
    address = plan.machines[node].address
    return {"taskmanager.host": address, "taskmanager.bind-host": address, "taskmanager.resource-id": node}


def _spark(plan: Plan) -> list[Service]:
    head, jars = plan.machines["beam-head"].address, f"{plan.programs.engine}/jars/*"
    master = f"spark://{head}:{SPARK_MASTER}"
    ports = ("--host", head, "--port", str(SPARK_MASTER), "--webui-port", str(SPARK_PAGE))
    environment = {"SPARK_SCALA_VERSION": "2.12", "SPARK_HOME": str(plan.programs.engine)}
    services = [
        plan.service(
            "spark-master",
            "beam-head",
            _java(plan, 300, jars, "org.apache.spark.deploy.master.Master", *ports),
            SPARK_MASTER,
            environment,
        )
    ]
    for number, node in enumerate(NODES, 1):
        folder = plan.scratch / f"spark-{number}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        own = ("--host", plan.machines[node].address, *size, master)
        java = _java(plan, 300, jars, "org.apache.spark.deploy.worker.Worker", *own)
        services.append(plan.service(f"spark-worker-{number}", node, java, environment=environment))
    return services


def _job_server(plan: Plan) -> Service:
    """Return Beam's job server: it takes pipelines, and hands them to the engine."""
    head = plan.machines["beam-head"].address
    engine = plan.engine.capitalize()
    master = {
        Engine.FLINK: f"--flink-master={head}:{FLINK_PAGE}",
        Engine.SPARK: f"--spark-master-url=spark://{head}:{SPARK_MASTER}",
    }
    ports = (f"--job-port={JOBS}", f"--artifact-port={ARTIFACTS}", f"--expansion-port={EXPANSION}")
    where = (f"--job-host={head}", *ports, f"--artifacts-dir={plan.scratch / 'artifacts'}")
    main = f"org.apache.beam.runners.{plan.engine}.{engine}JobServerDriver"
    jars, memory_mb = f"{plan.programs.job_server}/*", 400
    settings: tuple[str, ...] = ()
    if plan.engine is Engine.SPARK:  # the server is Spark's driver; Beam's libraries are newer than Spark's
        settings = (f"-Dspark.executor.extraClassPath={jars}",)
        jars, memory_mb = f"{jars}:{plan.programs.engine}/jars/*", 800
    java = _java(plan, memory_mb, jars, *settings, main, *where, master[plan.engine])
    return plan.service("job-server", "beam-head", java, JOBS, {"SPARK_LOCAL_IP": head})


def _pool(plan: Plan, node: str, environment: Mapping[str, str]) -> Service:
    """Return a pool of Python workers. It starts plain `python`: this environment's has to be first on its PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = (sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={POOL}")
    return plan.service(f"beam-pool-{node[-1]}", node, command, environment={**environment, "PATH": path})


def _java(plan: Plan, memory_mb: int, classes: str, main: str, *arguments: str) -> tuple[str, ...]:
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    exported = "--add-exports=java.base/sun.net.util=ALL-UNNAMED"
    limits = (f"-Xmx{memory_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={plan.scratch}")
    return (plan.programs.java, *opened, exported, *limits, "-Dlog4j2.level=INFO", "-cp", classes, main, *arguments)
