"""Where a pipeline runs, waiting for it, and the one folder for everything temporary of a run.

local       Beam's FnApiRunner, bounded in memory (`runner.spilling`), in this process, or several with `workers > 1`
portable    Beam's own job service and an external worker pool, both started here: the way a cluster runs Python
flink, spark, dataflow    Beam's runners of those names, with Beam's own options passed through
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import logging
import multiprocessing.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.runner import PipelineResult
from apache_beam.transforms import core, userstate
from google.protobuf.struct_pb2 import Struct

from pipelines.flink_jobs import NAME_OPTION, cancel_job
from pipelines.runner.spilling import SpillingRunner
from pipelines.settings import Runner
from schemas import errors
from schemas.collector import collect_rarely
from schemas.errors import BuildError, MultilinkError, UsageError
from schemas.failures import is_about_machine
from schemas.lake import Folder

START_TIMEOUT_S = 60.0
WORKER_TIMEOUT_S = 300.0  # a cluster without a free slot and a pool that starts no worker look alike
WORKER_LOG_LEVEL = "CRITICAL"  # what fails is raised, with its traceback, by the run itself
CLUSTER_LOG_LEVEL = "ERROR"  # the highest that Beam's Java half has a name for, too: its job server parses this option
_STEP = " [while running "
_SCRATCH = "multilink-run-"  # begins the names of folders of temporary files
T = TypeVar("T")
Assemble = Callable[[beam.Pipeline], None]
# The last line of a traceback, with the step Beam adds to it. A cause comes before what was raised from it.
_OWN_ERROR = re.compile(r"^schemas\.errors\.(?P<kind>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"(?:^Caused by: | failed in state FAILED: )(.+)$", re.MULTILINE)
_SYSTEM_ERROR = re.compile(r"^(?:\w+\.)*(?:\w*Error): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)


ON_THIS_MACHINE = frozenset({Runner.LOCAL, Runner.PORTABLE})
_CLUSTER_RUNNERS = {Runner.FLINK: "FlinkRunner", Runner.SPARK: "SparkRunner", Runner.DATAFLOW: "DataflowRunner"}


class _Options(PipelineOptions):
    """Beam's options, each view of them made once: Beam asks for one at every transform, and parses them all anew."""

    view_as = functools.cache(PipelineOptions.view_as)


def processes_of_machine(runner: Runner, workers: int, beam_options: Sequence[str]) -> int:
    """Return how many worker processes share a machine, 0 for one a core: what Beam's options say of a task manager.

    Several task managers on one machine know nothing of each other: there `features.threads` says it.
    """
    if runner in ON_THIS_MACHINE:
        return workers
    if runner is Runner.DATAFLOW:
        return 0
    return int(PipelineOptions(list(beam_options)).view_as(PortableOptions).sdk_worker_parallelism)


def run_pipeline(
    assemble: Assemble, *, runner: Runner, workers: int, sign: Sign | None = None, beam_options: Sequence[str] = ()
) -> PipelineResult:
    """Run a pipeline to its end; returns Beam's result, which has the metrics.

    Args:
        assemble: adds the pipeline's steps to its root.
        runner: where it runs.
        workers: worker processes (`local`, `portable`); clusters take theirs from `beam_options`.
        sign: what the first step of the pipeline leaves on a cluster; a run without it ends after WORKER_TIMEOUT_S.
            None: it is waited for.
        beam_options: Beam's own command-line options, passed through.

    Raises:
        BuildError: the run ended in another state than done, or no worker began in time.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    logging.getLogger("apache_beam").setLevel(WORKER_LOG_LEVEL)
    with _outside_notebooks(), _methods_read_once(), _collected_rarely(), _where(runner, workers) as (target, settings):
        options = [*settings, *_name(runner), *beam_options]
        pipeline = beam.Pipeline(runner=target, options=_Options(options))
        assemble(pipeline)
        try:
            result = pipeline.run()
            state = result.wait_until_finish() if sign is None else sign.await_end(result, options)
        except MultilinkError as mistake:  # raised in this process; Beam adds the step to its message
            raise type(mistake)(str(mistake).partition(_STEP)[0]) from mistake
        except Exception as failure:
            raise _own_error(str(failure)) or java_error(runner, str(failure)) or failure from failure
    if state not in (None, "DONE"):
        raise BuildError(f"the {runner} runner ended in state {state}")
    return result


@contextlib.contextmanager
def _outside_notebooks() -> Iterator[None]:
    """Hide IPython: Beam 2.77 names steps by a notebook's cells, by modules that cannot be imported with pandas 3."""
    found = sys.modules.get("IPython")
    sys.modules["IPython"] = None  # type: ignore[assignment]  # its import fails, and Beam takes that for a plain program
    try:
        yield
    finally:
        del sys.modules["IPython"]
        if found is not None:
            sys.modules["IPython"] = found


@contextlib.contextmanager
def _collected_rarely() -> Iterator[None]:
    """Collect cycles less often, and only among the objects that the run makes."""
    before = gc.get_threshold()
    gc.freeze()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def _methods_read_once() -> Iterator[None]:
    """Read the parameters of each method of a step once, and what state and timers a class of steps has.

    Beam 2.77 reads those of all methods of a DoFn at each bundle and at each step of translating a pipeline: half the
    processor time of a build of a few documents.
    """
    with (
        _cached(core, "get_function_args_defaults", _function),
        _cached(
            userstate, "get_dofn_specs", lambda step: (type(step), *filter(None, map(_function, vars(step).values())))
        ),
    ):
        yield


def _function(value: object) -> object | None:
    """Return the function of a method; None of anything else: a function of the moment leaves its place to another."""
    return value.__func__ if isinstance(value, MethodType) else None


@contextlib.contextmanager
def _cached(module: ModuleType, name: str, key: Callable[[Any], object | None]) -> Iterator[None]:
    """Cache the tuples that a function of a module returns, by a key of its argument; a key of None is not cached."""
    compute: Callable[[Any], tuple[Any, ...]] = getattr(module, name)
    known: dict[object, tuple[Any, ...]] = {}

    def cached(argument: Any) -> tuple[Any, ...]:
        found = key(argument)
        if found is None:
            return compute(argument)
        if found not in known:
            known[found] = compute(argument)
        return tuple(map(copy.copy, known[found]))

    setattr(module, name, cached)
    try:
        yield
    finally:
        setattr(module, name, compute)


@dataclass(frozen=True, slots=True)
class Sign:
    """A file that a worker writes when it begins: asked for once, when the time for beginning is over."""

    folder: Folder
    name: str = field(default_factory=lambda: f"{os.urandom(8).hex()}.sign")

    def leave(self, element: T) -> T:
        """Write the sign, in a worker, and pass an element on."""
        self.folder.write(self.name, b"begun\n")
        return element

    def await_end(self, result: PipelineResult, beam_options: Sequence[str]) -> str | None:
        """Return the state a run ended in.

        Raises:
            BuildError: there is no sign after WORKER_TIMEOUT_S. The run is cancelled, as by an interrupt.
        """
        try:
            with ThreadPoolExecutor(max_workers=1, thread_name_prefix="run") as pool:
                end = pool.submit(result.wait_until_finish)
                try:
                    if not wait([end], WORKER_TIMEOUT_S).done and not self.folder.exists(self.name):
                        raise BuildError(_no_worker(beam_options))
                    state: str | None = end.result()
                    return state
                except BaseException:
                    if not end.done():
                        _cancel(result, beam_options)
                    raise
        finally:
            self.folder.delete(self.name)


def _name(runner: Runner) -> list[str]:
    """Return the option that gives a run on Flink a name of its own, by which its job can be found."""
    return [f"{NAME_OPTION}multilink-{os.urandom(8).hex()}"] if runner is Runner.FLINK else []


def _cancel(result: PipelineResult, beam_options: Sequence[str]) -> None:
    """Cancel a run, and the job behind it; Beam's job server leaves a batch job of Flink's running."""
    result.cancel()
    try:
        cancel_job(beam_options)
    except OSError as problem:
        logging.getLogger(__name__).error("Flink cannot be asked to cancel the job, which may go on: %s", problem)


def _no_worker(beam_options: Sequence[str]) -> str:
    where = " ".join(option for option in beam_options if option.startswith("--environment_"))
    expected = "expected a worker pool that answers there beside every task manager, and a free slot"
    return f"no Beam worker began within {WORKER_TIMEOUT_S:.0f} s ({where or 'no --environment_type'}); {expected}"


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


def java_error(runner: Runner, text: str) -> BuildError | None:
    """Return the error behind what an engine's Java raised: its last cause; None where it raised nothing."""
    causes = _JAVA_CAUSE.findall(text)
    return BuildError(f"the {runner} runner failed: {causes[-1]}") if causes else None


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
        # Not the job service that Beam embeds: its threads keep a process from ending that is interrupted.
        with (
            _service("apache_beam.runners.portability.local_job_service_main", "--port") as job_port,
            _service("apache_beam.runners.worker.worker_pool_main", "--service_port") as pool_port,
        ):
            settings = [
                f"--job_endpoint=localhost:{job_port}",
                "--environment_type=EXTERNAL",
                f"--environment_config=localhost:{pool_port}",
                f"--sdk_worker_parallelism={workers}",
                f"--direct_num_workers={workers}",
            ]
            yield "PortableRunner", [*settings, _log_level(WORKER_LOG_LEVEL)]
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
def _service(module: str, port_option: str) -> Iterator[int]:
    """Run a service of Beam's on a free port; it ends with the block, or with this process.

    Raises:
        BuildError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # The worker pool starts plain `python`: this environment's has to be the first on its PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    start = [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), module]
    service = subprocess.Popen(
        [*start, f"{port_option}={port}"],
        env=os.environ | {"PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await_port(service, port)
        yield port
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait()


def _await_port(service: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while service.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        time.sleep(0.1)
    raise BuildError(f"a Beam service did not listen on port {port} within {START_TIMEOUT_S:.0f} s, or ended")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make temporary files of this process and of those it starts go to a folder of their own while the block runs.

    It is for progress, spilled collections and Beam's own files, is named after its process and removed at the end.
    What a killed process left is removed by the next run.
    """
    multiprocessing.util.get_temp_dir()  # has the socket of a server of processes, which may outlive this run
    before = tempfile.gettempdir()
    remove_leftovers(Path(before))
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = os.environ["TMPDIR"] = before


def remove_leftovers(root: Path) -> None:
    """Remove the folders of runs whose process is gone."""
    for folder in root.glob(f"{_SCRATCH}*"):
        process = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as problem:
        return isinstance(problem, PermissionError)  # it is somebody else's
    return True
