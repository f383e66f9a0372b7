"""The steps of an asset through Dagster Pipes: a process of this machine, or a job of a Ray cluster, maybe KubeRay's.

    subprocess   dagster.PipesSubprocessClient: a process of this machine, ended with this one
    ray-job      dagster_ray.PipesRayJobClient: submitted to the cluster's job server

Both run `external.py`, which takes the steps from Pipes' extras, and reports progress and materializations.

An asset has at most one job on a cluster. However it is left, its job is ended, because one that goes on would write
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg
from dagster_pipes import PIPES_PROTOCOL_VERSION_FIELD

from orchestration.config import RaySettings, RayWhere
from orchestration.dagster.external import ERROR, IS_FINAL, STEPS
from orchestration.steps import Step, as_json
from schemas.messages import BuildError

POLL_S = 5.0
END_TIMEOUT_S = 60.0
EXTERNAL = "orchestration.dagster.external"


class _Keeping(dg.PipesMessageReader):
    """A message reader that keeps its messages: a client that raises gives no session back."""

    messages: dg.PipesMessageHandler | None = None
    whole_log: Callable[[], str] = str
    expected_writer_count = 1  # Dagster's own is a preview, which warns

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[Mapping[str, Any]]:
        """Read while the block lasts, and keep the messages."""
        self.messages = handler
        with super().read_messages(handler) as parameters:  # type: ignore[safe-super]  # of the other base
            yield parameters

    def read(self) -> tuple[list[dg.MaterializeResult[Any]], list[dict[str, Any]]]:
        """Return the materializations and the expected errors that were reported.

        Of a log that could not be followed, the whole is read.
        """
        handler = self.messages
        if handler is None:
            return [], []
        if not handler.get_reported_results() and not handler.get_custom_messages():
            for line in self.whole_log().splitlines():
                if PIPES_PROTOCOL_VERSION_FIELD in line:
                    handler.handle_message(json.loads(line))
        made = [each for each in handler.get_reported_results() if isinstance(each, dg.MaterializeResult)]
        return made, list(handler.get_custom_messages())


class FileReader(_Keeping, dg.PipesTempFileMessageReader):
    """Reads what a process of this machine reports."""


def _job_reader() -> _Keeping:
    """Return what reads what a Ray job reports; the client of Ray is imported when it is used."""
    from dagster_ray.core.pipes import PipesRayJobMessageReader

    class JobReader(_Keeping, PipesRayJobMessageReader):
        """Keeps them."""

    return JobReader()


@dataclass(frozen=True, slots=True)
class StepPipes:
    """Does the steps of an asset in an external process, at the place that the settings name.

    Attributes:
        ray: where the cluster is.
        prepared: gives a step as it is done, and what it needs as long as that lasts.
    """

    ray: RaySettings
    prepared: Callable[[Step], AbstractContextManager[Step]] = nullcontext

    def do(
        self, context: dg.AssetExecutionContext, *steps: Step, where: RayWhere = RayWhere.SUBPROCESS
    ) -> list[dg.MaterializeResult[Any]]:
        """Do steps, one after the other, and return the materializations that they reported.

        Raises:
            dg.Failure: a step ended with an expected error.
            BuildError: the process could not be started or waited for, or ended without a result.
        """
        is_here, op = where is RayWhere.SUBPROCESS, context.op_execution_context
        reader = FileReader() if is_here else _job_reader()
        problem: Exception | None = None
        with ExitStack() as held:
            extras = {STEPS: [as_json(held.enter_context(self.prepared(step))) for step in steps]}
            try:
                (_run_process if is_here else self._run_job)(op, extras, reader)
            except Exception as raised:  # noqa: BLE001  # each client has its own, and Dagster's has no public name
                problem = raised
        made, errors = reader.read()
        if errors:
            raise dg.Failure(errors[0][ERROR], allow_retries=not errors[0][IS_FINAL]) from problem
        if problem is not None or not made:
            nothing = "the process ended without a result; check that dagster-pipes is installed in its image"
            raise BuildError(str(problem or nothing)) from problem
        return made

    def _run_job(self, context: dg.OpExecutionContext, extras: dict[str, Any], reader: _Keeping) -> None:
        from dagster_ray import PipesRayJobClient

        client = PipesRayJobClient(address=self.ray.address, message_reader=reader, poll_interval=POLL_S)
        jobs, name, deadline = client.client, job_name(context), time.monotonic() + END_TIMEOUT_S
        while left := [
            each.submission_id
            for each in jobs.list_jobs()
            if (each.submission_id or "").startswith(name) and not each.status.is_terminal()
        ]:
            if time.monotonic() > deadline:
                raise BuildError(f"Ray jobs {', '.join(left)} do not stop")
            for earlier in left:
                jobs.stop_job(earlier)
            time.sleep(1)
        job, entrypoint = f"{name}-{os.urandom(3).hex()}", job_command(self.ray.deadline_s)
        try:
            reader.whole_log = partial(jobs.get_job_logs, job)
            client.run(
                context=context, submit_job_params={"entrypoint": entrypoint, "submission_id": job}, extras=extras
            )
        except BaseException:
            with suppress(Exception):  # it may have ended by itself, and what stopped it is to be raised
                jobs.stop_job(job)
            raise


def _run_process(context: dg.OpExecutionContext, extras: dict[str, Any], reader: _Keeping) -> None:
    command = [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), EXTERNAL]
    client = dg.PipesSubprocessClient(message_reader=reader, termination_timeout_seconds=END_TIMEOUT_S)
    client.run(context=context, command=command, extras=extras)


def job_name(context: dg.OpExecutionContext) -> str:
    """Return what the jobs of an asset are called, the same in each attempt at a run."""
    assets = sorted(key.to_user_string() for key in context.selected_asset_keys)
    about = " ".join([context.run.root_run_id or context.run.run_id, *assets])
    return f"multilink-{hashlib.sha256(about.encode()).hexdigest()[:10]}"


def job_command(deadline_s: int) -> str:
    """Return the command line of a Ray job: the external process, interrupted at its deadline."""
    ended_at = ("timeout", "--foreground", "--signal=INT", f"--kill-after={END_TIMEOUT_S:.0f}", str(deadline_s))
    return shlex.join([*ended_at, "python", "-m", EXTERNAL])
