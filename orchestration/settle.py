"""Runs whose process is gone are told to have failed, so that Dagster's daemon starts them again.

Asked for when nothing of a workspace runs: before its processes start, and after the code server, which holds the runs,
ended and its runs with it. Steps give what they had: a build goes on from its captures, a training from its checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

_HELD = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def settle(home: Path) -> int:
    """Mark the runs of a Dagster home that say they are running as failed; return how many there were."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs(dg.RunsFilter(statuses=_HELD))
        for run in runs:
            instance.report_run_failed(run, "its process ended before it did")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return len(runs)
