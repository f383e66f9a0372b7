"""Everything Dagster is told, made from the settings: assets, checks, sensors, and here the jobs and schedules.

Loading it reads the settings file and nothing else: no network, no credential, no lake. Beam, Ray, torch and MLflow are
imported when a step first needs them.

Jobs are what a person or a schedule starts, each on one data set; `everything` is the others in one run. They run in
one process each: a run's steps share what was imported and loaded, and what is heavy has its own workers (Beam, Ray).
Steps that do not depend on a failed one are done all the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import dagster as dg

from orchestration.config import NOSTRUCT, DatasetSettings, Settings, load_settings
from orchestration.dagster.assets import make_models, make_stages
from orchestration.dagster.checks import make_checks
from orchestration.dagster.history import busy_datasets
from orchestration.dagster.names import STAGES, group_of, model_key
from orchestration.dagster.sensors import LINK, PROMOTE, TRAIN, make_sensors
from orchestration.rules.decisions import EVALUATION, LINKS, PROMOTION, TRAINED
from orchestration.steps import Steps

REBUILD, EVERYTHING = "rebuild", "everything"
_MEANING = {
    REBUILD: "Scrape or read the source and build a version of the data set, with its checks.",
    TRAIN: "Train every configured objective on the newest version.",
    PROMOTE: "Evaluate the newest models, and promote those the gate lets pass.",
    LINK: "Link the newest version with the champions.",
    EVERYTHING: "From sources to links: rebuild, train, evaluate, promote, link.",
}


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the settings file, when Dagster asks for them."""
    return make_definitions(load_settings(os.environ))


def make_definitions(settings: Settings, steps: Steps | None = None) -> dg.Definitions:
    """Return the definitions that settings ask for; `steps` stand in for those of the settings."""
    models = [asset for objective in settings.objectives for asset in make_models(settings, objective)]
    return dg.Definitions(
        assets=[make_stages(settings), *models],
        asset_checks=make_checks(settings),
        jobs=make_jobs(settings),
        schedules=[_rebuild(settings, dataset) for dataset in settings.datasets],
        sensors=make_sensors(settings),
        resources={"steps": steps or Steps(settings=settings)},
        executor=dg.in_process_executor,
    )


def make_jobs(settings: Settings) -> Sequence[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs."""
    selections = {
        REBUILD: dg.AssetSelection.assets(*STAGES),
        TRAIN: _kinds(settings, TRAINED),
        PROMOTE: _kinds(settings, EVALUATION, PROMOTION),
        LINK: _kinds(settings, LINKS),
        EVERYTHING: dg.AssetSelection.all(),
    }
    return [
        dg.define_asset_job(name, selection=selection, description=_MEANING[name])
        for name, selection in selections.items()
    ]


def _kinds(settings: Settings, *kinds: str) -> dg.AssetSelection:
    """Return the assets of some kinds; NoStruct is neither promoted nor used to link."""
    return dg.AssetSelection.assets(
        *(
            model_key(objective, kind)
            for objective in settings.objectives
            for kind in kinds
            if objective != NOSTRUCT or kind in (TRAINED, EVALUATION)
        )
    )


def _rebuild(settings: Settings, dataset: DatasetSettings) -> dg.ScheduleDefinition:
    """Return the schedule of a data set's rebuilds."""

    @dg.schedule(
        name=f"rebuild_{group_of(dataset.name)}",
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
