"""Where a step runs: in this process, in one of its own on this machine, or as a job of a Ray cluster.

    in process      the command line's own parser, called here
    subprocess      python -m orchestration ... --json, ended with this process (pipelines.runner.exit_with_parent)
    ray job         ray job submit --address ... -- multilink ... --json
    kuberay         a RayJob of the KubeRay operator: kubectl create, get until it has ended, logs

A step is the arguments of `multilink`, and its result is the summary that the command prints as its last line; what it
prints before is its progress. A step that is cancelled takes its job on the cluster with it: a job that went on would
write beside the one that is started next.

A Beam cluster is none of these: `multilink build --runner flink` is a subprocess here that drives the cluster.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from orchestration.config import RaySettings
from orchestration.rayjob import rayjob
from schemas.console import Say, heard_by
from schemas.errors import BuildError, GateError, UsageError

Step = Sequence[str]
Summary = dict[str, Any]
END_TIMEOUT_S = 20.0
POLL_S = 5.0
_PREFIX = "multilink: "
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


def in_process(step: Step, say: Say) -> Summary:
    """Do a step here.

    Raises:
        MultilinkError: of the kind that the command ends with.
    """
    from orchestration.commands import app

    with heard_by(say) as summaries:
        try:
            app(list(step), prog_name="multilink", standalone_mode=False)
        except GateError:
            if not (summaries and _is_decision(summaries[-1])):
                raise
    return summaries[-1]


def in_subprocess(step: Step, say: Say) -> Summary:
    """Do a step in a process of its own, which ends when this one does."""
    mortal = [sys.executable, "-m", "pipelines.runner.exit_with_parent", str(os.getpid()), "orchestration"]
    return run_command([*mortal, *step], say)


def ray_job(step: Step, say: Say, *, address: str) -> Summary:
    """Submit a step to the job server of a Ray cluster, and wait for it."""
    job = _job_name()
    with _cancelled_by(["ray", "job", "stop", "--address", address, job]):
        return run_command(ray_job_command(step, address=address, job=job), say)


def kuberay(step: Step, say: Say, *, ray: RaySettings) -> Summary:
    """Run a step as a RayJob, and wait for it; `kubectl` is the one on the PATH, with its own credentials."""
    name, kubectl = _job_name(), ["kubectl", "--namespace", ray.namespace]
    _output([*kubectl, "create", "--filename", "-"], json.dumps(rayjob(step, name=name, ray=ray)))
    say(f"RayJob {name} in namespace {ray.namespace}")
    get = [*kubectl, "get", "rayjob", name, "--output", "json"]
    with _cancelled_by([*kubectl, "delete", "rayjob", name, "--wait=false"]):
        while (state := job_state(json.loads(_output(get)))) not in _ENDED:
            time.sleep(POLL_S)
    log = _output([*kubectl, "logs", f"job/{name}", "--tail", "-1"]).splitlines()
    summary = last_json(log)
    if state != "SUCCEEDED" or summary is None:
        raise BuildError(f"RayJob {name} ended as {state}: {_last_words(log)}")
    return summary


def ray_job_command(step: Step, *, address: str, job: str) -> list[str]:
    """Return the command that submits a step under a name and prints what it prints."""
    return ["ray", "job", "submit", "--address", address, "--submission-id", job, "--", "multilink", *step]


def job_state(rayjob_object: dict[str, Any]) -> str:
    """Return the state of a RayJob as the operator tells it; one it has not looked at yet is PENDING."""
    status = rayjob_object.get("status") or {}
    if status.get("jobDeploymentStatus") in ("Failed", "ValidationFailed"):
        return "FAILED"
    return str(status.get("jobStatus") or "PENDING")


def run_command(command: Sequence[str], say: Say) -> Summary:
    """Run a command, tell what it prints, and return its summary.

    Raises:
        UsageError: it ended with status 2: a mistake.
        BuildError: it ended with another status and no summary, or could not be started.
    """
    lines: list[str] = []
    _require_program(command)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                say(lines[-1])
            status = process.wait()
        finally:
            _end(process)
    summary = last_json(lines)
    if summary is not None and (status == 0 or _is_decision(summary)):
        return summary
    kind = UsageError if status == UsageError.exit_status else BuildError
    raise kind(f"status {status}: {_last_words(lines)}")


def last_json(lines: Sequence[str]) -> Summary | None:
    """Return the last line that is a JSON object, or None; what a cluster prints after it does not hide it."""
    for line in reversed(lines):
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                value: Summary = json.loads(line)
                return value
    return None


def _is_decision(summary: Summary) -> bool:
    """Return whether a summary is a gate's: its no ends the command with an error, and is a result all the same."""
    return "is_promoted" in summary


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and what is left of its process group: asked first, forced after a while."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _output(command: Sequence[str], text: str | None = None) -> str:
    _require_program(command)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:6])}: {_last_words(done.stderr.splitlines())}")
    return done.stdout


def _require_program(command: Sequence[str]) -> None:
    if shutil.which(command[0]) is None:
        raise BuildError(f"{command[0]}: no such command on this machine")


@contextlib.contextmanager
def _cancelled_by(command: Sequence[str]) -> Iterator[None]:
    """Run a command that ends a job of a cluster where the block is left by an interrupt or an error."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(BuildError):  # it may have ended by itself, and what stopped the block is to be told
            _output(command)
        raise


def _job_name() -> str:
    return f"multilink-{os.urandom(4).hex()}"


def _last_words(lines: Sequence[str]) -> str:
    """Return the command's own line about what went wrong, or else the last one it printed."""
    for line in reversed(lines):
        if line.startswith(_PREFIX):
            return line.removeprefix(_PREFIX)
    return next((line for line in reversed(lines) if line.strip()), "it printed nothing")
