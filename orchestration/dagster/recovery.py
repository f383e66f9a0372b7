"""Runs whose process has ended are reported as failed, so that Dagster's daemon starts them again.

There are two kinds. Some have the status of a running one: they are listed while nothing of a workspace runs, before
its processes start, and after the code server ended and its runs with it. Others failed, and will not be retried: the
daemon tries once to start a failed run again, and gives it up for good where the code server is away. Both are reported
once the code server listens. Steps continue: a build from its captures, a training from its checkpoint.

The tags are those that Dagster's page shows on a run.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

DAEMON_SEES_CODE_S = 5.0
WILL_RETRY, RETRIED_BY = "dagster/will_retry", "dagster/auto_retry_run_id"
REASON, ROOT = "dagster/failure_reason", "dagster/root_run_id"
_RUNNING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def unfinished_runs(home: Path) -> list[str]:
    """Return the runs of a Dagster home that have the status of a running one."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=_RUNNING))]


def restart_interrupted(home: Path, unfinished: Sequence[str]) -> None:
    """Let the daemon start the runs again whose processes have ended, and those that it gave up.

    Args:
        home: Dagster's home, whose code server listens.
        unfinished: runs that had the status of a running one when nothing ran; those that have ended since stay.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        if not unfinished and not given_up(instance):
            return
        time.sleep(DAEMON_SEES_CODE_S)
        running = instance.get_runs(dg.RunsFilter(run_ids=list(unfinished), statuses=_RUNNING)) if unfinished else []
        for run in [*running, *given_up(instance)]:
            instance.report_run_failed(run, "its process ended before it did")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def given_up(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the interrupted runs with attempts left that will have none: the one try to start them again failed."""
    failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], tags={WILL_RETRY: "false"})
    interrupted = [
        run
        for run in instance.get_runs(failed)
        if RETRIED_BY not in run.tags and run.tags.get(REASON) != "STEP_FAILURE"
    ]
    retries = [instance.get_runs(dg.RunsFilter(tags={ROOT: run.root_run_id or run.run_id})) for run in interrupted]
    most = instance.run_retries_max_retries
    return [run for run, own in zip(interrupted, retries, strict=True) if len(own) < most]
