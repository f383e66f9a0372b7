"""Where a pipeline runs, and waiting for it.

local       Beam's FnApiRunner, bounded in memory (`runner.spilling`), in this process, or several with `workers > 1`
portable, flink, spark, dataflow    Beam's runners of those names, with Beam's own options passed through
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.runner import PipelineResult
from apache_beam.transforms import core, userstate
from apache_beam.transforms.environments import SubprocessSDKEnvironment
from google.protobuf.struct_pb2 import Struct

from pipelines.runner.spilling import SpillingRunner
from pipelines.settings import Runner
from schemas import messages
from schemas.failures import is_about_machine
from schemas.lake import Folder
from schemas.messages import BuildError, MultilinkError, UsageError

WORKER_TIMEOUT_S = 300.0  # a cluster without a free slot and a pool that starts no worker look alike
WORKER_LOG_LEVEL = "CRITICAL"  # what fails is raised, with its traceback, by the run itself
CLUSTER_LOG_LEVEL = "ERROR"  # the highest that Beam's Java half has a name for, too: its job server parses this option
_STEP = " [while running "
_MOST_METHODS = 10_000  # whose parameters are remembered
T = TypeVar("T")
V = TypeVar("V", bound=PipelineOptions)
Assemble = Callable[[beam.Pipeline], None]
# The last line of a traceback, with the step Beam adds to it. A cause comes before what was raised from it.
_OWN_ERROR = re.compile(r"^schemas\.messages\.(?P<kind>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"(?:^Caused by: | failed in state FAILED: )(.+)$", re.MULTILINE)
_SYSTEM_ERROR = re.compile(r"^(?:\w+\.)*(?:\w*Error): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)


_CLUSTER_RUNNERS = {
    Runner.PORTABLE: "PortableRunner",
    Runner.FLINK: "FlinkRunner",
    Runner.SPARK: "SparkRunner",
    Runner.DATAFLOW: "DataflowRunner",
}


class _Options(PipelineOptions):
    """Beam's options, each view of them made once: Beam asks for one at every transform, and parses them all again."""

    def view_as(self, cls: type[V]) -> V:
        views: dict[type[V], V] = self.__dict__.setdefault("views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def _function(value: object) -> object | None:
    """Return the function of a method; None of anything else: a function of the moment leaves its place to another."""
    return value.__func__ if isinstance(value, MethodType) else None


def _read_once(read: Callable[[Any], tuple[Any, ...]], key: Callable[[Any], object | None]) -> Callable[[Any], Any]:
    """Return a function of Beam's that reads code, its results remembered by a key; a key of None is not."""
    results: dict[object, tuple[Any, ...]] = {}

    def read_once(argument: Any) -> tuple[Any, ...]:
        known = key(argument)
        found = results.get(known) if known is not None else read(argument)
        if found is None:
            found = results[known] = read(argument)
            if len(results) > _MOST_METHODS:
                results.clear()
        return tuple(map(copy.copy, found))

    return read_once


# Beam 2.77 reads the parameters of all methods of a DoFn at each bundle and at each step of translating a pipeline:
# half the processor time of a build of a few documents. In a notebook it names steps by cells, by modules that cannot
# be imported with pandas 3. Both are changed here, for good: what is changed and restored is not safe among threads.
core.get_function_args_defaults = _read_once(core.get_function_args_defaults, _function)
userstate.get_dofn_specs = _read_once(
    userstate.get_dofn_specs, lambda step: (type(step), *filter(None, map(_function, vars(step).values())))
)
beam.pipeline.alter_label_if_ipython = lambda transform, _: transform
beam.pipeline.is_in_ipython = bool  # False


def processes_of_machine(runner: Runner, workers: int, beam_options: Sequence[str]) -> int:
    """Return how many worker processes share a machine, 0 for one a core: what Beam's options say of a task manager.

    Several task managers on one machine know nothing of each other: there `features.threads` says it.
    """
    if runner is Runner.LOCAL:
        return workers
    if runner is Runner.DATAFLOW:
        return 0
    return int(_portable_options(beam_options).sdk_worker_parallelism)


def _portable_options(beam_options: Sequence[str]) -> PortableOptions:
    return PipelineOptions(list(beam_options)).view_as(PortableOptions)


def run_pipeline(
    assemble: Assemble, *, runner: Runner, workers: int, sign: Sign | None = None, beam_options: Sequence[str] = ()
) -> PipelineResult:
    """Run a pipeline to its end; returns Beam's result, which has the metrics.

    Args:
        assemble: adds the pipeline's steps to its root.
        runner: where it runs.
        workers: worker processes (`local`); clusters take theirs from `beam_options`.
        sign: what the first step of the pipeline leaves on a cluster; a run without it ends after WORKER_TIMEOUT_S.
            None: it is waited for.
        beam_options: Beam's own command-line options, passed through.

    Raises:
        UsageError: there are less than one worker, or the portable runner has no job service.
        BuildError: the run ended in another state than done, or no worker began in time.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    if runner is Runner.PORTABLE and not _portable_options(beam_options).job_endpoint:
        raise UsageError("--runner portable: expected the address of your job service; -- --job_endpoint=HOST:PORT")
    logging.getLogger("apache_beam").setLevel(WORKER_LOG_LEVEL)
    if runner is Runner.LOCAL:
        target: object = _local_runner(workers)
        settings = [f"--direct_num_workers={workers}", _log_level(WORKER_LOG_LEVEL)]
    else:
        target, settings = _CLUSTER_RUNNERS[runner], [_log_level(CLUSTER_LOG_LEVEL)]
    name = [f"{NAME_OPTION}multilink-{os.urandom(8).hex()}"] if runner is Runner.FLINK else []  # finds its job
    options = [*settings, *name, *beam_options]
    pipeline = beam.Pipeline(runner=target, options=_Options(options))
    try:
        assemble(pipeline)
        result = pipeline.run()
        state = result.wait_until_finish() if sign is None else sign.await_end(result, options)
    except MultilinkError as mistake:  # raised in this process; Beam adds the step to its message
        raise type(mistake)(str(mistake).partition(_STEP)[0]) from mistake
    except Exception as failure:
        raise _own_error(str(failure)) or java_error(runner, str(failure)) or failure from failure
    finally:  # Beam removes it where it ran to an end, and not where it was interrupted before
        shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    if state not in (None, "DONE"):
        raise BuildError(f"the {runner} runner ended in state {state}")
    return result


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


def _cancel(result: PipelineResult, beam_options: Sequence[str]) -> None:
    """Cancel a run, and the job behind it; Beam's job server leaves a batch job of Flink's running."""
    result.cancel()
    try:
        cancel_job(beam_options)
    except OSError as problem:
        logging.getLogger(__name__).error(
            "Flink did not receive the request to cancel the job, which may still run: %s", problem
        )


def _no_worker(beam_options: Sequence[str]) -> str:
    where = " ".join(option for option in beam_options if option.startswith("--environment_"))
    expected = "expected a worker pool that answers there, one for every task manager, and a free slot"
    return f"no Beam worker began within {WORKER_TIMEOUT_S:.0f} s ({where or 'no --environment_type'}); {expected}"


def _own_error(text: str) -> MultilinkError | None:
    """Return the error behind a worker's traceback, of which a runner passes on no more than the text.

    It is one of this project, or one about the machine; None where it is neither.
    """
    own = list(_OWN_ERROR.finditer(text))
    if own:
        error: MultilinkError = getattr(messages, own[-1]["kind"])(own[-1]["message"].strip())
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
    return BuildError(f"{message}; completed work is kept: free some space and build again")


def _log_level(level: str) -> str:
    return f"--default_sdk_harness_log_level={level}"


def _local_runner(workers: int) -> SpillingRunner:
    """Return Beam's local runner, its worker processes as quiet as workers elsewhere are told to be by an option."""
    start = f"exec {shlex.join([*_with_parent('apache_beam.runners.worker.sdk_worker_main')])}"
    environment = SubprocessSDKEnvironment.from_command_string(start) if workers > 1 else None
    options = Struct()
    options.update({"beam:option:default_sdk_harness_log_level:v1": WORKER_LOG_LEVEL})
    information = beam_provision_api_pb2.ProvisionInfo(retrieval_token="none", pipeline_options=options)
    return SpillingRunner(default_environment=environment, provision_info=ExtendedProvisionInfo(information))


def _with_parent(module: str) -> list[str]:
    return [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), module]


OPTION, NAME_OPTION = "--flink_master=", "--job_name="
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "CANCELLING"})
_TIMEOUT_S = 30.0


def cancel_job(beam_options: Sequence[str]) -> list[str]:
    """Cancel what runs under the name of a run, and return the ids of these jobs.

    Args:
        beam_options: with the address of the master and the name; without an address, or with one in brackets (Flink
            within another program), there is nothing to ask.

    Raises:
        OSError: the master cannot be asked.
    """
    master, name = (_value(beam_options, option) for option in (OPTION, NAME_OPTION))
    if not master or master.startswith("[") or not name:
        return []
    base = master if "://" in master else f"http://{master}"
    jobs = [job for job in _ask(f"{base}/jobs/overview")["jobs"] if job["name"] == name and job["state"] not in _ENDED]
    for job in jobs:
        _ask(f"{base}/jobs/{job['jid']}?mode=cancel", "PATCH")
    return [job["jid"] for job in jobs]


def _value(options: Sequence[str], name: str) -> str:
    return next((option.removeprefix(name) for option in reversed(options) if option.startswith(name)), "")


def _ask(url: str, method: str = "GET") -> dict[str, Any]:
    with urlopen(Request(url, method=method), timeout=_TIMEOUT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
