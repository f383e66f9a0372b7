"""When data sets are rebuilt: one schedule a data set, weekly or monthly unless its settings say otherwise."""

from collections.abc import Sequence

import dagster as dg

from orchestration.config import DatasetSettings, Settings
from orchestration.dagster.history import busy_datasets
from orchestration.dagster.jobs import REBUILD
from orchestration.dagster.names import group_of


def make_schedules(settings: Settings) -> Sequence[dg.ScheduleDefinition]:
    """Return the schedules."""
    return [_rebuild(settings, dataset) for dataset in settings.datasets]


def schedule_name(dataset: str) -> str:
    """Return the name of a data set's schedule."""
    return f"rebuild_{group_of(dataset)}"


def _rebuild(settings: Settings, dataset: DatasetSettings) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=schedule_name(dataset.name),
        job_name=REBUILD,
        cron_schedule=dataset.schedule,
        execution_timezone=settings.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.is_running else dg.DefaultScheduleStatus.STOPPED,
        description=f"Rebuild {dataset.name}.",
    )
    def rebuild(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if dataset.name in busy_datasets(context.instance):
            return dg.SkipReason(f"a run of {dataset.name} is not finished yet")
        return dg.RunRequest(partition_key=dataset.name)

    return rebuild
