"""Where a pipeline runs, and waiting for it.

local       Beam's FnApiRunner, bounded in memory (`spilling_runner`), in this process, or several with `workers > 1`
portable    Beam's own job service and an external worker pool, both started here: the way a cluster runs Python
flink, spark, dataflow    Beam's runners of those names, with Beam's own options passed through
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, RunnerResult
from google.protobuf.struct_pb2 import Struct

from pipelines.runner.spilling import SpillingRunner
from schemas import errors
from schemas.errors import BuildError, MultilinkError, UsageError
from schemas.failures import is_about_machine

START_TIMEOUT_S = 60.0
WORKER_LOG_LEVEL = "CRITICAL"  # what fails is raised, with its traceback, by the run itself
CLUSTER_LOG_LEVEL = "ERROR"  # the highest that Beam's Java half has a name for, too: its job server parses this option
_STEP_TIME = "metric:ptransform_execution_time:total_msecs:v1"
_STEP = " [while running "
Assemble = Callable[[beam.Pipeline], None]
# The last line of a traceback, with the step Beam adds to it. A cause comes before what was raised from it.
_OWN_ERROR = re.compile(r"^schemas\.errors\.(?P<kind>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
_SYSTEM_ERROR = re.compile(r"^(?:\w+\.)*(?:\w*Error): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)


class Runner(StrEnum):
    LOCAL = "local"
    PORTABLE = "portable"
    FLINK = "flink"
    SPARK = "spark"
    DATAFLOW = "dataflow"


ON_THIS_MACHINE = frozenset({Runner.LOCAL, Runner.PORTABLE})
_CLUSTER_RUNNERS = {Runner.FLINK: "FlinkRunner", Runner.SPARK: "SparkRunner", Runner.DATAFLOW: "DataflowRunner"}


def run_pipeline(
    assemble: Assemble, *, runner: Runner, workers: int, beam_options: Sequence[str] = ()
) -> dict[str, float]:
    """Run a pipeline to its end; returns the seconds of work by step, where the runner tells (`local` does).

    Args:
        assemble: adds the pipeline's steps to its root.
        runner: where it runs.
        workers: worker processes (`local`, `portable`); clusters take theirs from `beam_options`.
        beam_options: Beam's own command-line options, passed through.

    Raises:
        BuildError: the run ended in another state than done.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    logging.getLogger("apache_beam").setLevel(WORKER_LOG_LEVEL)
    with _where(runner, workers) as (target, settings):
        options = [*settings, *beam_options]
        pipeline = beam.Pipeline(runner=target, options=PipelineOptions(options))
        assemble(pipeline)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except MultilinkError as mistake:  # raised in this process; Beam adds the step to its message
            raise type(mistake)(str(mistake).partition(_STEP)[0]) from mistake
        except Exception as failure:
            own = machine_error(failure) if is_about_machine(failure) else _own_error(str(failure))
            raise own or failure from failure
    if state not in (None, "DONE"):
        raise BuildError(f"the {runner} runner ended in state {state}")
    return _seconds_by_step(result)


def _seconds_by_step(result: object) -> dict[str, float]:
    """Return what Beam's sampler saw of each step, keyed by the step's full name, added up over worker processes."""
    if not isinstance(result, RunnerResult):
        return {}
    counters = result.monitoring_metrics().query()["counters"]
    return {str(each.key.step): each.committed / 1000 for each in counters if each.key.metric.name == _STEP_TIME}


def _own_error(text: str) -> MultilinkError | None:
    """Return the error behind a worker's traceback, of which a runner passes on no more than the text.

    It is one of this project, or one about the machine; None where it is neither.
    """
    own = list(_OWN_ERROR.finditer(text))
    if own:
        error: MultilinkError = getattr(errors, own[-1]["kind"])(own[-1]["message"].strip())
        return error
    system = [found["message"] for found in _SYSTEM_ERROR.finditer(text)]
    about_machine = [message for message in system if is_about_machine(OSError(message))]
    if about_machine or re.search(r"^MemoryError", text, re.MULTILINE):
        return machine_error(about_machine[-1] if about_machine else "out of memory")
    return None


def machine_error(message: object) -> BuildError:
    """Return the error of a build that the machine could not carry on."""
    return BuildError(f"{message}; what is done is kept: build again when there is room")


@contextlib.contextmanager
def _where(runner: Runner, workers: int) -> Iterator[tuple[object, list[str]]]:
    if runner is Runner.LOCAL:
        mode = "in_memory" if workers == 1 else "multi_processing"
        settings = [f"--direct_num_workers={workers}", f"--direct_running_mode={mode}"]
        yield _local_runner(), [*settings, _log_level(WORKER_LOG_LEVEL)]
    elif runner is Runner.PORTABLE:
        with _portable_services() as (job_port, pool_port):
            yield (
                "PortableRunner",
                [
                    f"--job_endpoint=localhost:{job_port}",
                    "--environment_type=EXTERNAL",
                    f"--environment_config=localhost:{pool_port}",
                    f"--sdk_worker_parallelism={workers}",
                    f"--direct_num_workers={workers}",
                    _log_level(WORKER_LOG_LEVEL),
                ],
            )
    else:
        yield _CLUSTER_RUNNERS[runner], [_log_level(CLUSTER_LOG_LEVEL)]


def _log_level(level: str) -> str:
    return f"--default_sdk_harness_log_level={level}"


def _local_runner() -> SpillingRunner:
    """Return Beam's local runner, its worker processes as quiet as workers elsewhere are told to be by an option."""
    options = Struct()
    options.update({"beam:option:default_sdk_harness_log_level:v1": WORKER_LOG_LEVEL})
    information = beam_provision_api_pb2.ProvisionInfo(retrieval_token="none", pipeline_options=options)
    return SpillingRunner(provision_info=ExtendedProvisionInfo(information))


@contextlib.contextmanager
def _portable_services() -> Iterator[tuple[int, int]]:
    """Run a job service and a worker pool on free ports; both end with the block, or with this process."""
    job_port, pool_port = _free_ports(2)
    portability = "apache_beam.runners.portability.local_job_service_main"
    pool = "apache_beam.runners.worker.worker_pool_main"
    services = [_start(portability, f"--port={job_port}"), _start(pool, f"--service_port={pool_port}")]
    try:
        for service, port in zip(services, (job_port, pool_port), strict=True):
            _await_port(service, port)
        yield job_port, pool_port
    finally:
        for service in services:
            os.killpg(service.pid, signal.SIGTERM)
            service.wait()


def _start(module: str, argument: str) -> subprocess.Popen[bytes]:
    # The pool starts plain `python`: this environment's has to be the first on its PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), module, argument],
        env=os.environ | {"PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def _await_port(service: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if service.poll() is not None:
            raise BuildError(f"a Beam service ended with status {service.returncode} before it listened")
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        time.sleep(0.1)
    raise BuildError(f"a Beam service did not listen on port {port} within {START_TIMEOUT_S:.0f} s")
