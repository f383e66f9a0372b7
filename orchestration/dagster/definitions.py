"""Everything Dagster is told: assets, checks, jobs, schedules, sensors, resources, made from the settings.

Loading it reads the settings file and nothing else: no network, no credential, no lake. Beam, Ray, torch and MLflow are
imported when a step first needs them.
"""

from __future__ import annotations

import os

import dagster as dg

from orchestration.config import Settings, load_settings
from orchestration.dagster.assets import make_models
from orchestration.dagster.checks import make_checks
from orchestration.dagster.jobs import make_jobs
from orchestration.dagster.resources import make_resources
from orchestration.dagster.schedules import make_schedules
from orchestration.dagster.sensors import make_sensors
from orchestration.dagster.stages import make_stages


def make_definitions(settings: Settings) -> dg.Definitions:
    """Return the definitions that settings ask for."""
    models = [asset for objective in settings.objectives for asset in make_models(settings, objective)]
    return dg.Definitions(
        assets=[make_stages(settings), *models],
        asset_checks=make_checks(settings),
        jobs=make_jobs(settings),
        schedules=make_schedules(settings),
        sensors=make_sensors(settings),
        resources=make_resources(settings),
        executor=dg.in_process_executor,
    )


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the settings file, when Dagster asks for them."""
    return make_definitions(load_settings(os.environ))
