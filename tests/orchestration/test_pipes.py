"""Steps through Dagster Pipes: real processes, a real Ray cluster with tokens, Dagster's own record of what was told.

A build that waits for another one of its data set is the step that takes long: it says so, and goes on for ever.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.config import RaySettings, RayWhere
from orchestration.dagster import pipes
from orchestration.dagster.pipes import Pipes
from orchestration.steps import Step, Summary
from pipelines.turns import turn_of_build
from schemas.errors import BuildError, ConfigError, MultilinkError, UsageError
from schemas.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
HERE = RaySettings()
WAIT_S = 120.0
WAITING = "another build of documents is under way on this lake"
MISTAKE = ["build", "diy", "--lake", "nowhere", "--set", "dedupe.radus=2", "--json"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as opened:
        opened.get_runs()  # makes its tables, which two threads must not
        yield opened


@pytest.fixture
def long_step(tmp_path: Path) -> Iterator[Step]:
    """A build that waits as long as the test lasts."""
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"id": "a", "sentences": ["One."], "images": []}\n', encoding="utf-8")
    with turn_of_build(Lake.at(str(tmp_path / "lake")), "documents", print):
        yield [
            *("build", "documents", "--lake", str(tmp_path / "lake"), "--json"),
            *(
                "--set",
                f"source.documents={documents}",
                "--set",
                "features.images=[]",
                "--set",
                "features.sentences=[]",
            ),
        ]


def do(
    step: Step,
    instance: dg.DagsterInstance,
    ray: RaySettings = HERE,
    first: Callable[[Pipes], object] = lambda _: None,
) -> Summary | MultilinkError:
    """Do a step for an asset of a run, after something else, and return its summary or its error."""
    came_of_it: list[Summary | MultilinkError] = []

    @dg.asset
    def made(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        through = Pipes(context.op_execution_context, ray)
        first(through)
        try:
            came_of_it.append(through(step, context.log.info, ray.where))
        except MultilinkError as problem:
            came_of_it.append(problem)
        yield dg.MaterializeResult()

    dg.materialize([made], instance=instance)
    return came_of_it[0]


def told(instance: dg.DagsterInstance) -> list[str]:
    """Return the lines of the logs of all runs that have begun."""
    begun = [run for run in instance.get_runs() if run.status is not dg.DagsterRunStatus.NOT_STARTED]
    return [entry.user_message for run in begun for entry in instance.all_logs(run.run_id)]


def meanwhile(act: Callable[[], object], when: Callable[[], bool]) -> threading.Thread:
    """Act once something is so, while a step runs."""

    def wait() -> None:
        deadline = time.monotonic() + WAIT_S
        while not when() and time.monotonic() < deadline:
            time.sleep(0.2)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def children_of(words: str) -> list[int]:
    """Return this process's children whose command holds some words."""
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    listed = subprocess.run(command, check=False, capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if words in line]


def test_the_summary_and_the_mistake_of_a_command_arrive_as_what_they_are(instance: dg.DagsterInstance) -> None:
    summary = do(["settings", "--json"], instance)
    assert isinstance(summary, dict)
    assert summary["train"]["tiny"].startswith("Small data")
    problem = do(MISTAKE, instance)
    assert type(problem) is ConfigError
    assert "did you mean 'dedupe.radius'?" in str(problem)


def test_an_error_arrives_as_the_nearest_kind_that_dagster_knows(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """A kind of error may be defined anywhere, here in `schemas.leases`."""
    lake = Lake.at(str(tmp_path / "lake"))
    lake.root.write("marker", b"")
    with turn_of_build(lake, "documents", say=lambda _: None):
        problem = do(["lake", "sweep", "--lake", lake.root.uri, "--json"], instance)
    assert type(problem) is UsageError and "is working there" in str(problem)


def test_progress_is_in_the_runs_log_while_the_step_runs_and_a_death_is_an_error(
    instance: dg.DagsterInstance, long_step: Step
) -> None:
    killer = meanwhile(
        lambda: [os.kill(pid, signal.SIGKILL) for pid in children_of("orchestration build documents")],
        lambda: any(WAITING in line for line in told(instance)),
    )
    problem = do(long_step, instance)
    killer.join()
    assert type(problem) is BuildError
    assert "-9" in str(problem)


def test_a_cancelled_run_ends_its_process(instance: dg.DagsterInstance, long_step: Step) -> None:
    canceller = meanwhile(
        lambda: os.kill(os.getpid(), signal.SIGINT), lambda: any(WAITING in line for line in told(instance))
    )
    with pytest.raises(BaseException, match=r"(?i)interrupt|^$"):
        do(long_step, instance)
    canceller.join()
    assert children_of("orchestration build documents") == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[RaySettings]:
    """A Ray head with token authentication, of a process of its own; this process knows the token."""
    pytest.importorskip("aiohttp_cors", reason="Ray's job server comes with ray[default]")
    folder = Path(tempfile.mkdtemp(prefix="multilink-ray-", dir="/tmp"))  # short: a socket's path has 107 characters
    port, ray = free_port(), str(Path(sys.executable).with_name("ray"))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | token | {"PATH": path, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    addresses = [
        "--port",
        str(free_port()),
        "--dashboard-port",
        str(port),
        "--ray-client-server-port",
        str(free_port()),
    ]
    small = ["--num-cpus", "2", "--object-store-memory", "100000000", "--temp-dir", str(folder)]
    head = subprocess.Popen(
        [ray, "start", "--head", "--block", "--disable-usage-stats", *addresses, *small],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    before = {name: os.environ.get(name) for name in token}
    os.environ.update(token)
    forget_tokens()
    try:
        settings = RaySettings(where=RayWhere.RAY_JOB, address=f"http://127.0.0.1:{port}")
        wait_for_jobs(settings.address, head)
        yield settings
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        forget_tokens()
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(WAIT_S)
        shutil.rmtree(folder, ignore_errors=True)


def forget_tokens() -> None:
    """Let Ray read its token and whether it needs one anew: it does so once a process, maybe in an earlier test."""
    from ray._raylet import AuthenticationTokenLoader, Config

    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


def jobs_at(address: str) -> Any:
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(address)


def wait_for_jobs(address: str, head: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            jobs_at(address).list_jobs()
            return
        except (ConnectionError, RuntimeError):
            assert head.poll() is None and time.monotonic() < deadline
            time.sleep(0.5)


def statuses(cluster: RaySettings) -> list[str]:
    return [str(job.status) for job in jobs_at(cluster.address).list_jobs()]


@pytest.mark.trial
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray 2.60 of itself
def test_a_ray_job_reports_as_a_process_does_and_a_cancelled_one_is_stopped(
    instance: dg.DagsterInstance, cluster: RaySettings, long_step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    summary = do(["settings", "--json"], instance, cluster)
    assert isinstance(summary, dict), summary
    assert summary["train"]["tiny"].startswith("Small data")
    problem = do(MISTAKE, instance, cluster)
    assert type(problem) is ConfigError
    assert "did you mean 'dedupe.radius'?" in str(problem)
    assert sorted(statuses(cluster)) == ["FAILED", "SUCCEEDED"]

    canceller = meanwhile(
        lambda: os.kill(os.getpid(), signal.SIGINT), lambda: any(WAITING in line for line in told(instance))
    )
    with pytest.raises(BaseException, match=r"(?i)interrupt|^$"):
        do(long_step, instance, cluster)
    canceller.join()
    deadline = time.monotonic() + WAIT_S
    while "STOPPED" not in statuses(cluster):
        assert time.monotonic() < deadline, statuses(cluster)
        time.sleep(0.5)


@pytest.mark.trial
def test_what_a_job_reported_is_read_from_its_whole_log_where_that_could_not_be_followed(
    instance: dg.DagsterInstance, cluster: RaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "ssl=None is deprecated")  # ends the following of the log
        summary = do(["settings", "--json"], instance, cluster)
    assert isinstance(summary, dict), summary
    assert summary["train"]["tiny"].startswith("Small data")


@pytest.mark.trial
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray 2.60 of itself
def test_the_job_that_a_killed_attempt_left_is_stopped_before_the_next_one_starts(
    instance: dg.DagsterInstance, cluster: RaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    jobs, left = jobs_at(cluster.address), []

    def leave(through: Pipes) -> None:
        for name in (f"{through.name}-left", "multilink-of-another"):
            left.append(jobs.submit_job(entrypoint="sleep 600", submission_id=name))

    assert isinstance(do(["settings", "--json"], instance, cluster, leave), dict)
    assert str(jobs.get_job_status(left[0])) == "STOPPED"
    assert not jobs.get_job_status(left[1]).is_terminal()
    jobs.stop_job(left[1])
