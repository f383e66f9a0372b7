"""Runs whose process is gone are told to have failed, so that Dagster's daemon starts them again.

There are two kinds. Those that say they are running: which these are is asked while nothing of a workspace runs, before
its processes start, and after the code server ended and its runs with it. And those that could still say that they were
interrupted: the daemon tries once to start a failed run again, and gives it up for good where the code server is gone.
Both are told once the code server listens. Steps give what they had: a build goes on from its captures, a training from
its checkpoint.

The tags are those that Dagster's page shows on a run.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

DAEMON_SEES_CODE_S = 5.0
WILL_RETRY, RETRIED_BY = "dagster/will_retry", "dagster/auto_retry_run_id"
REASON, ROOT = "dagster/failure_reason", "dagster/root_run_id"
_HELD = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def held_runs(home: Path) -> list[str]:
    """Return the runs of a Dagster home that say they are running."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=_HELD))]


def settle(home: Path, held: Sequence[str]) -> None:
    """Have the runs started again that were held by processes that are gone, and those that were given up.

    Args:
        home: Dagster's home, whose code server listens.
        held: runs that said they were running when nothing ran; those that have ended since are left alone.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        if not held and not given_up(instance):
            return
        time.sleep(DAEMON_SEES_CODE_S)
        still_held = instance.get_runs(dg.RunsFilter(run_ids=list(held), statuses=_HELD)) if held else []
        for run in [*still_held, *given_up(instance)]:
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
    return [run for run in interrupted if _retries(instance, run) < instance.run_retries_max_retries]


def _retries(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int:
    return len(instance.get_runs(dg.RunsFilter(tags={ROOT: run.root_run_id or run.run_id})))
