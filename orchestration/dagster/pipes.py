"""A step through Dagster Pipes: a process of this machine, or a job of a Ray cluster, which may be one of KubeRay.

    subprocess   dagster.PipesSubprocessClient: python -m orchestration ..., ended with this process
    ray-job      dagster_ray.PipesRayJobClient: submitted to the cluster's job server

The command reports its progress and its summary by Pipes messages (`reporting.py`): progress is on the run's page while
it runs, and an error is raised here as the error it is there.

A step has at most one job on a cluster. However it is left, its job is ended, because one that goes on would write
beside the next; and what an attempt left that was killed is ended before the next one starts. A Ray job gets its
deadline from `timeout`; what waits for a place is given up by Ray itself (RAY_JOB_START_TIMEOUT_SECONDS, 15 minutes).

The cluster authenticates by a token in this process's environment: RAY_AUTH_MODE=token, RAY_AUTH_TOKEN.
"""

import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dagster as dg
from dagster_ray import PipesRayJobClient
from dagster_ray.core.pipes import PipesRayJobMessageReader

from orchestration.config import RaySettings, RayWhere
from orchestration.dagster.reporting import ERROR, MESSAGE, SUMMARY
from orchestration.steps import Step, Steps, Summary, is_decision
from schemas import errors
from schemas.console import Say
from schemas.errors import BuildError, MultilinkError

POLL_S = 5.0
END_TIMEOUT_S = 60.0


def piped(steps: Steps, context: dg.AssetExecutionContext) -> Steps:
    """Return steps that are done by Pipes, for an asset that is being made."""
    return replace(steps, run=Pipes(context.op_execution_context, steps.settings.ray))


class _KeepingReader(dg.PipesMessageReader):
    """Another message reader whose messages are kept: a client that raises gives no session back."""

    def __init__(self, reader: dg.PipesMessageReader) -> None:
        self._reader = reader
        self._handler: dg.PipesMessageHandler | None = None
        self.whole_log: Callable[[], str] = str

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[Mapping[str, Any]]:
        """Read while the block lasts, and keep the handler."""
        self._handler = handler
        with self._reader.read_messages(handler) as parameters:
            yield parameters

    def on_launched(self, launched_payload: Any) -> None:
        """Pass on where the job is."""
        self._reader.on_launched(launched_payload)

    @property
    def expected_writer_count(self) -> int:
        """Return how many processes report."""
        return 1

    def no_messages_debug_text(self) -> str:
        """Return the reader's hint for a job without messages."""
        return self._reader.no_messages_debug_text()

    def outcome(self, problem: Exception | None = None) -> Summary:
        """Return the summary that was reported; a refusal of the gate is one as well.

        Raises:
            MultilinkError: of the kind that was reported, else a `BuildError` with the client's message.
        """
        reported: dict[str, Any] = {}
        messages = [] if self._handler is None else self._handler.get_custom_messages()
        for message in messages or _custom_messages(self.whole_log()):  # of a log that could not be followed, the whole
            reported |= message
        summary: Summary | None = reported.get(SUMMARY)
        if summary is not None and (problem is None or is_decision(summary)):
            return summary
        if ERROR in reported:
            kind: type[MultilinkError] = getattr(errors, reported[ERROR])
            raise kind(reported[MESSAGE]) from problem
        nothing = "the process ended without a result; check its log, and that dagster-pipes is installed in its image"
        raise BuildError(str(problem or nothing)) from problem


def _custom_messages(log: str) -> Iterator[dict[str, Any]]:
    """Yield what a command reported in a log, beside its progress."""
    for line in log.splitlines():
        with suppress(json.JSONDecodeError, TypeError, KeyError):
            message = json.loads(line)
            if message["method"] == "report_custom_message":
                yield message["params"]["payload"]


@dataclass(frozen=True, slots=True)
class Pipes:
    """Runs steps for an asset that is being made, where the settings place them."""

    context: dg.OpExecutionContext
    ray: RaySettings

    def __call__(self, step: Step, say: Say, where: RayWhere) -> Summary:
        """Do a step and return its summary.

        Raises:
            MultilinkError: of the kind that the command ends with; a `BuildError` where it could not be started or
                waited for.
        """
        is_here = where is RayWhere.SUBPROCESS
        reader = _KeepingReader(dg.PipesTempFileMessageReader() if is_here else PipesRayJobMessageReader())
        try:
            (self._process if is_here else self._ray_job)(step, reader)
        except Exception as problem:  # noqa: BLE001  # each client has its own, and Dagster's has no public name
            return reader.outcome(problem)
        return reader.outcome()

    @property
    def name(self) -> str:
        """Return what the jobs of this step are called, the same in each attempt at a run."""
        run = self.context.run
        assets = sorted(key.to_user_string() for key in self.context.selected_asset_keys)
        about = " ".join([run.root_run_id or run.run_id, *assets])
        return f"multilink-{hashlib.sha256(about.encode()).hexdigest()[:10]}"

    def _process(self, step: Step, reader: _KeepingReader) -> None:
        mortal = [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), "orchestration"]
        client = dg.PipesSubprocessClient(message_reader=reader, termination_timeout_seconds=END_TIMEOUT_S)
        client.run(context=self.context, command=[*mortal, *step])

    def _ray_job(self, step: Step, reader: _KeepingReader) -> None:
        client = PipesRayJobClient(address=self.ray.address, message_reader=reader, poll_interval=POLL_S)
        jobs, job = client.client, f"{self.name}-{os.urandom(3).hex()}"

        def left() -> list[str]:
            ours = [each for each in jobs.list_jobs() if (each.submission_id or "").startswith(self.name)]
            return [each.submission_id or "" for each in ours if not each.status.is_terminal()]

        for earlier in left():
            jobs.stop_job(earlier)
        _await(lambda: not left(), f"Ray jobs {self.name} do not stop")
        reader.whole_log = partial(jobs.get_job_logs, job)
        with _ended_by(lambda: jobs.stop_job(job)):
            entrypoint = ray_job_command(step, deadline_s=self.ray.deadline_s)
            client.run(context=self.context, submit_job_params={"entrypoint": entrypoint, "submission_id": job})


def ray_job_command(step: Step, *, deadline_s: int) -> str:
    """Return the command line of a Ray job: the step, interrupted at its deadline."""
    limit = ["timeout", "--foreground", "--signal=INT", f"--kill-after={END_TIMEOUT_S:.0f}", str(deadline_s)]
    return shlex.join([*limit, "multilink", *step])


@contextmanager
def _ended_by(end: Callable[[], object]) -> Iterator[None]:
    """End a job of a cluster where the block is left by an interrupt or an error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # it may have ended by itself, and what stopped the block is to be raised
            end()
        raise


def _await(is_done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise BuildError(otherwise)
        time.sleep(1)
