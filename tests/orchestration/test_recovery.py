"""Runs that ended with their process are started again by the daemon, also where its one try has failed."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG, PARENT_RUN_ID_TAG, ROOT_RUN_ID_TAG, WILL_RETRY_TAG

from orchestration.dagster import recovery
from orchestration.local.up import DAGSTER_SETTINGS


@dg.job
def nothing() -> None:
    """The job of the runs."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recovery, "DAEMON_SEES_CODE_S", 0.0)
    (tmp_path / "dagster.yaml").write_text(DAGSTER_SETTINGS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


def failed(instance: dg.DagsterInstance, reason: RunFailureReason, *, parent: dg.DagsterRun | None = None) -> str:
    """Return a run that failed, and that the daemon has tried in vain to start again."""
    root = None if parent is None else parent.run_id
    run = instance.create_run_for_job(
        nothing,
        status=dg.DagsterRunStatus.STARTED,
        root_run_id=root,
        parent_run_id=root,
        tags={} if root is None else {ROOT_RUN_ID_TAG: root, PARENT_RUN_ID_TAG: root},
    )
    instance.report_run_failed(run, "it failed", JobFailureData(error=None, failure_reason=reason))
    instance.add_run_tags(run.run_id, {WILL_RETRY_TAG: "false"})
    return run.run_id


def will_retry(instance: dg.DagsterInstance, run_id: str) -> str | None:
    return instance.get_run_by_id(run_id).tags.get(WILL_RETRY_TAG)


def test_an_interrupted_run_that_was_given_up_is_told_again(home: Path, instance: dg.DagsterInstance) -> None:
    run_id = failed(instance, RunFailureReason.UNEXPECTED_TERMINATION)
    recovery.restart_interrupted(home, [])
    assert will_retry(instance, run_id) == "true"
    told = instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert len(told) == 2  # the second is what the daemon sees
    assert recovery.given_up(instance) == []


def test_what_another_attempt_does_not_mend_is_left(home: Path, instance: dg.DagsterInstance) -> None:
    mistake = failed(instance, RunFailureReason.STEP_FAILURE)
    again = failed(instance, RunFailureReason.UNEXPECTED_TERMINATION)
    instance.add_run_tags(again, {AUTO_RETRY_RUN_ID_TAG: "another"})
    recovery.restart_interrupted(home, [])
    assert [will_retry(instance, each) for each in (mistake, again)] == ["false", "false"]


def test_attempts_come_to_an_end(home: Path, instance: dg.DagsterInstance) -> None:
    first = instance.get_run_by_id(failed(instance, RunFailureReason.UNEXPECTED_TERMINATION))
    instance.add_run_tags(first.run_id, {AUTO_RETRY_RUN_ID_TAG: "another"})
    others = [
        failed(instance, RunFailureReason.UNEXPECTED_TERMINATION, parent=first)
        for _ in range(instance.run_retries_max_retries)
    ]
    recovery.restart_interrupted(home, [])
    assert {will_retry(instance, each) for each in others} == {"false"}


def test_runs_that_say_they_run_are_told_once_they_are_held(home: Path, instance: dg.DagsterInstance) -> None:
    held = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)
    later = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)
    assert set(recovery.unfinished_runs(home)) == {held.run_id, later.run_id}
    recovery.restart_interrupted(home, [held.run_id])
    assert recovery.unfinished_runs(home) == [later.run_id]
    assert will_retry(instance, held.run_id) == "true"
