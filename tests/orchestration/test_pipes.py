"""Steps through Dagster Pipes: real processes, a real Ray cluster with tokens, Dagster's own record of what was told.

A build that waits for another one of its data set is the step that takes long: it says so, and goes on for ever.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from PIL import Image
from repository import ROOT
from servers import children_of, free_port, wait_for

from orchestration.config import RaySettings, RayWhere
from orchestration.dagster import pipes
from orchestration.dagster.pipes import StepPipes, job_name
from orchestration.steps import Step, build
from pipelines.turns import turn_of_build
from schemas.lake import Lake
from schemas.messages import BuildError

HERE = RaySettings()
WAIT_S = 120.0
WAITING = "another build of documents is under way on this lake"
MISTAKE = partial(build, dataset="diy", lake="nowhere", settings=("dedupe.radus=2",))
NO_FEATURES = ("features.images=[]", "features.sentences=[]")
STAGES = ("documents", "images", "duplicates", "features", "shards")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as opened:
        opened.get_runs()  # makes its tables, which two threads must not
        yield opened


def build_of(folder: Path) -> Step:
    """Return a build of one document."""
    documents = folder / "documents.jsonl"
    record = {"id": "a", "sentences": ["One."], "images": [{"path": "a.png"}]}
    Image.new("RGB", (96, 96), "red").save(folder / "a.png")
    documents.write_text(json.dumps(record) + "\n", encoding="utf-8")
    settings = (f"source.documents={documents}", *NO_FEATURES)
    return partial(build, dataset="documents", lake=str(folder / "lake"), settings=settings)


@pytest.fixture
def long_step(tmp_path: Path) -> Iterator[Step]:
    """A build that waits as long as the test lasts."""
    with turn_of_build(Lake.at(str(tmp_path / "lake")), "documents", print):
        yield build_of(tmp_path)


def do(
    step: Step,
    instance: dg.DagsterInstance,
    ray: RaySettings = HERE,
    first: Callable[[dg.AssetExecutionContext], object] = lambda _: None,
) -> dict[str, dg.MaterializeResult[Any]] | dg.Failure | BuildError:
    """Do a step for the assets of a run, after something else, and return what was reported, or the error."""
    came_of_it: list[Any] = []

    @dg.multi_asset(specs=[dg.AssetSpec(stage) for stage in STAGES])
    def made(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        first(context)
        try:
            results = StepPipes(ray).do(context, step, where=ray.where)
            came_of_it.append({each.asset_key.to_user_string(): each for each in results if each.asset_key})
        except (dg.Failure, BuildError) as problem:
            came_of_it.append(problem)
        yield from (dg.MaterializeResult(asset_key=stage) for stage in STAGES)

    dg.materialize([made], instance=instance)
    return came_of_it[0]


def closed_with(instance: dg.DagsterInstance) -> list[str]:
    """Return the classes of the errors that external processes ended with, as Dagster's page shows them."""
    events = [entry.dagster_event for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    errors = [getattr(event.event_specific_data, "error", None) for event in events if event]
    return [str(error.cls_name) for error in errors if error]


def told(instance: dg.DagsterInstance) -> list[str]:
    """Return the lines of the logs of all runs that have begun."""
    begun = [run for run in instance.get_runs() if run.status is not dg.DagsterRunStatus.NOT_STARTED]
    return [entry.user_message for run in begun for entry in instance.all_logs(run.run_id)]


def meanwhile(act: Callable[[], object], when: Callable[[], bool]) -> threading.Thread:
    """Act once something is so, while a step runs."""

    def wait() -> None:
        wait_for(when)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_build_is_reported_stage_by_stage_and_a_mistake_as_what_it_is(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    made = do(build_of(tmp_path), instance)
    assert isinstance(made, dict) and tuple(made) == STAGES
    (version,) = Lake.at(str(tmp_path / "lake")).versions("documents")
    assert {each.data_version for each in made.values()} == {dg.DataVersion(version)}
    shards = made["shards"].metadata or {}
    assert shards["dagster/row_count"] == dg.MetadataValue.int(1) and shards["path"].value.endswith(version)
    assert next(each.data for each in shards["splits"].records if each.data["documents"])["images"] == 1
    counts = {"in": 1, "out": 1, "rejected": 0, "failed": 0}
    (images,) = (made["images"].metadata or {})["counts"].records
    assert images.data == {"stage": "images"} | counts
    problem = do(MISTAKE, instance)
    assert isinstance(problem, dg.Failure) and not problem.allow_retries
    assert "did you mean 'dedupe.radius'?" in str(problem.description)
    assert closed_with(instance) == ["ConfigError"]


def test_progress_is_in_the_runs_log_while_the_step_runs_and_a_death_is_an_error(
    instance: dg.DagsterInstance, long_step: Step
) -> None:
    killer = meanwhile(
        lambda: [os.kill(pid, signal.SIGKILL) for pid in children_of(pipes.EXTERNAL)],
        lambda: any(WAITING in line for line in told(instance)),
    )
    problem = do(long_step, instance)
    killer.join()
    assert type(problem) is BuildError and "-9" in str(problem)


def test_a_cancelled_run_ends_its_process(instance: dg.DagsterInstance, long_step: Step) -> None:
    canceller = meanwhile(
        lambda: os.kill(os.getpid(), signal.SIGINT), lambda: any(WAITING in line for line in told(instance))
    )
    with pytest.raises(BaseException, match=r"(?i)interrupt|^$"):
        do(long_step, instance)
    canceller.join()
    assert children_of(pipes.EXTERNAL) == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[RaySettings]:
    """A Ray head with token authentication, of a process of its own; this process knows the token."""
    pytest.importorskip("aiohttp_cors", reason="Ray's job server comes with ray[default]")
    folder = Path(tempfile.mkdtemp(prefix="multilink-ray-", dir="/tmp"))  # short: a socket's path has 107 characters
    port, ray = free_port(), str(Path(sys.executable).with_name("ray"))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | token | {"PATH": path, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    addresses = [f"--port={free_port()}", f"--dashboard-port={port}", f"--ray-client-server-port={free_port()}"]
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
        wait_for(lambda: is_answering(settings.address, head))
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


def is_answering(address: str, head: subprocess.Popen[bytes]) -> bool:
    try:
        jobs_at(address).list_jobs()
    except (ConnectionError, RuntimeError):
        assert head.poll() is None
        return False
    return True


def statuses(cluster: RaySettings) -> list[str]:
    return [str(job.status) for job in jobs_at(cluster.address).list_jobs()]


@pytest.mark.trial
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray 2.60 of itself
def test_a_ray_job_reports_as_a_process_does_and_a_cancelled_one_is_stopped(
    instance: dg.DagsterInstance, cluster: RaySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    made = do(build_of(tmp_path), instance, cluster)
    assert isinstance(made, dict) and tuple(made) == STAGES, made
    problem = do(MISTAKE, instance, cluster)
    assert isinstance(problem, dg.Failure) and not problem.allow_retries
    assert "did you mean 'dedupe.radius'?" in str(problem.description)
    assert sorted(statuses(cluster)) == ["FAILED", "SUCCEEDED"]

    canceller = meanwhile(
        lambda: os.kill(os.getpid(), signal.SIGINT), lambda: any(WAITING in line for line in told(instance))
    )
    with (
        turn_of_build(Lake.at(str(tmp_path / "lake")), "documents", print),
        pytest.raises(BaseException, match=r"(?i)interrupt|^$"),
    ):
        do(build_of(tmp_path), instance, cluster)
    canceller.join()
    wait_for(lambda: "STOPPED" in statuses(cluster))


@pytest.mark.trial
def test_what_a_job_reported_is_read_from_its_whole_log_where_that_could_not_be_followed(
    instance: dg.DagsterInstance, cluster: RaySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "ssl=None is deprecated")  # ends the following of the log
        made = do(build_of(tmp_path), instance, cluster)
    assert isinstance(made, dict) and tuple(made) == STAGES, made


@pytest.mark.trial
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray 2.60 of itself
def test_the_job_that_a_killed_attempt_left_is_stopped_before_the_next_one_starts(
    instance: dg.DagsterInstance, cluster: RaySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    jobs, left = jobs_at(cluster.address), []

    def leave(context: dg.AssetExecutionContext) -> None:
        for name in (f"{job_name(context.op_execution_context)}-left", "multilink-of-another"):
            left.append(jobs.submit_job(entrypoint="sleep 600", submission_id=name))

    assert isinstance(do(build_of(tmp_path), instance, cluster, leave), dict)
    assert str(jobs.get_job_status(left[0])) == "STOPPED"
    assert not jobs.get_job_status(left[1]).is_terminal()
    jobs.stop_job(left[1])
