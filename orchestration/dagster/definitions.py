"""Dagster's definitions, made from the settings: assets, checks, and here what starts runs.

Loading it reads the settings file and nothing else: no network, no credential, no lake. Beam, Ray, torch and MLflow are
imported when a step first needs them.

Jobs are what a person, a schedule or a sensor starts, each on one data set; `everything` is the others in one run. They
run in one process each, and each step in one of its own or on a cluster (`pipes.py`). Steps that do not depend on a
failed one are done all the same.

Sensors read what there is, let `rules/decisions.py` decide, and hand its requests to Dagster. The state comes from
three places: Dagster's record (versions and the results of their checks), the registry (models and aliases), the lake
(links). Whatever moved an alias or registered a model, a sensor sees it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import dagster as dg

from orchestration.config import DatasetSettings, Settings, load_settings
from orchestration.dagster.assets import kinds_of, make_models, make_stages
from orchestration.dagster.checks import make_checks
from orchestration.dagster.record import STAGES, VERSION_TAG, busy_datasets, group_of, model_key, version_records
from orchestration.rules.decisions import (
    EVALUATION,
    INDEX,
    LINKS,
    PROMOTION,
    TRAINED,
    DatasetState,
    ModelState,
    Request,
    decide_linking,
    decide_promotion,
    decide_training,
)
from orchestration.steps import Steps, registered_name
from schemas.errors import MultilinkError
from schemas.lake import MANIFEST, Lake

REBUILD, TRAIN, PROMOTE, LINK, EVERYTHING = "rebuild", "train", "promote", "link", "everything"
_MEANING = {
    REBUILD: "Scrape or read the source and build a version of the data set, with its checks.",
    TRAIN: "Train every configured objective on the newest version.",
    PROMOTE: "Evaluate the newest models, and promote those the gate lets pass.",
    LINK: "Link the newest version with the champions, and make its pictures searchable.",
    EVERYTHING: "From sources to links and indexes: rebuild, train, evaluate, promote, link, index.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A sensor: what it watches for, how it decides, and which job it starts."""

    name: str
    decide: Callable[[Sequence[DatasetState]], list[Request]]
    job: str
    description: str


RULES = (
    Rule(
        name="new_data_set_version",
        decide=decide_training,
        job=TRAIN,
        description="A sound new version: train the objectives configured for the data set.",
    ),
    Rule(
        name="new_challenger",
        decide=decide_promotion,
        job=PROMOTE,
        description="A new challenger: evaluate it and apply the gate.",
    ),
    Rule(
        name="alias_change",
        decide=decide_linking,
        job=LINK,
        description="A new champion, or a new version: link the newest version with the champion, and index it.",
    ),
)


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the settings file, when Dagster loads them."""
    return make_definitions(load_settings(os.environ))


def make_definitions(settings: Settings, steps: Steps | None = None) -> dg.Definitions:
    """Return the definitions by some settings; `steps` replace those of the settings."""
    models = [asset for objective in settings.objectives for asset in make_models(settings, objective)]
    return dg.Definitions(
        assets=[make_stages(settings), *models],
        asset_checks=make_checks(settings),
        jobs=make_jobs(settings),
        schedules=[_rebuild(settings, dataset) for dataset in settings.datasets],
        sensors=[_sensor(settings, rule) for rule in RULES],
        resources={"steps": steps or Steps(settings=settings)},
        executor=dg.in_process_executor,
    )


def make_jobs(settings: Settings) -> Sequence[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs."""
    selections = {
        REBUILD: dg.AssetSelection.assets(*STAGES),
        TRAIN: _kinds(settings, TRAINED),
        PROMOTE: _kinds(settings, EVALUATION, PROMOTION),
        LINK: _kinds(settings, LINKS, INDEX),
        EVERYTHING: dg.AssetSelection.all(),
    }
    return [
        dg.define_asset_job(name, selection=selection, description=_MEANING[name])
        for name, selection in selections.items()
    ]


def _kinds(settings: Settings, *kinds: str) -> dg.AssetSelection:
    """Return the assets of some kinds."""
    return dg.AssetSelection.assets(
        *(
            model_key(objective, kind)
            for objective in settings.objectives
            for kind in kinds_of(objective)
            if kind in kinds
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


def read_state(settings: Settings, instance: dg.DagsterInstance) -> list[DatasetState]:
    """Return what there is of every data set."""
    busy = busy_datasets(instance)
    states = []
    for dataset in settings.datasets:
        try:
            states.append(_dataset_state(settings, instance, dataset, dataset.name in busy))
        except MultilinkError as problem:  # of this data set; the others go on
            states.append(DatasetState(name=dataset.name, problem=str(problem)))
    return states


def _sensor(settings: Settings, rule: Rule) -> dg.SensorDefinition:
    @dg.sensor(
        name=rule.name,
        job_name=rule.job,
        minimum_interval_seconds=settings.sensor_interval_s,
        description=rule.description,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.is_running else dg.DefaultSensorStatus.STOPPED,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        states = read_state(settings, context.instance)
        problems = [f"{state.name}: {state.problem}" for state in states if state.problem]
        for problem in problems:
            context.log.error(problem)
        requests = rule.decide(states)
        if not requests:
            return dg.SkipReason("; ".join(problems) or "nothing new")
        found = [
            dg.RunRequest(
                run_key=request.key,
                job_name=rule.job,
                partition_key=request.dataset,
                asset_selection=[model_key(request.objective, kind) for kind in request.kinds],
                tags={VERSION_TAG: request.version},
            )
            for request in requests
        ]
        return dg.SensorResult(run_requests=found)

    return sensor


def _dataset_state(
    settings: Settings, instance: dg.DagsterInstance, dataset: DatasetSettings, is_busy: bool
) -> DatasetState:
    newest = next(version_records(instance, dataset.name, limit=1), None)
    if newest is None or not newest.is_sound or is_busy:  # nothing is to be decided, so the registry is not read
        return DatasetState(name=dataset.name, is_busy=is_busy)
    version = newest.version
    models = tuple(_model_state(settings, dataset.name, version, objective) for objective in dataset.objectives)
    return DatasetState(name=dataset.name, version=version, made_in=newest.run_id, is_sound=True, models=models)


def _model_state(settings: Settings, dataset: str, version: str, objective: str) -> ModelState:
    from training.mlflow.champions import align
    from training.mlflow.registry import ModelStatus, has_model, status_of
    from training.mlflow.runs import open_tracking

    name = registered_name(dataset, objective)
    client = open_tracking(settings.tracking_uri)
    found = ModelStatus()
    if has_model(client, name):  # aligned, since who stated something may have been killed right after it
        found = status_of(align(client, name))
    lake, champion = Lake.at(settings.lake), found.champion or ""
    applied = (lake.links(dataset, version, name, champion), lake.index(dataset, version, f"{name}-{champion}"))
    is_applied = found.champion is not None and all(folder.exists(MANIFEST) for folder in applied)
    return ModelState(objective=objective, name=name, is_applied=is_applied, **asdict(found))
