"""Runs whose process is gone are told to have failed, so that Dagster's daemon starts them again.

Which those are is asked while nothing of a workspace runs: before its processes start, and after the code server ended
and its runs with it. They are told once the code server listens, because the daemon tries a retry once. Steps give what
they had: a build goes on from its captures, a training from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

DAEMON_SEES_CODE_S = 5.0
_HELD = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def held_runs(home: Path) -> list[str]:
    """Return the runs of a Dagster home that say they are running."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=_HELD))]


def settle(home: Path, run_ids: Sequence[str]) -> None:
    """Mark those of some runs that still say they are running as failed, once the daemon can start them again."""
    if not run_ids:
        return
    time.sleep(DAEMON_SEES_CODE_S)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for run in instance.get_runs(dg.RunsFilter(run_ids=list(run_ids), statuses=_HELD)):
            instance.report_run_failed(run, "its process ended before it did")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
