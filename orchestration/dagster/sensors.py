"""The sensors: they read what there is, let `rules/decisions.py` decide, and hand its requests to Dagster.

The state comes from three places: Dagster's record (versions and what their checks said), the registry (models and
aliases), the lake (links). Whatever moved an alias or registered a model, a sensor sees it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import dagster as dg

from orchestration.config import DatasetSettings, Settings
from orchestration.dagster.history import busy_datasets, made
from orchestration.dagster.names import VERSION_TAG, model_key
from orchestration.rules.decisions import (
    DatasetState,
    ModelState,
    Request,
    decide_linking,
    decide_promotion,
    decide_training,
)
from orchestration.steps import registered_name
from schemas.lake import MANIFEST, Lake

TRAIN, PROMOTE, LINK = "train", "promote", "link"
Decide = Callable[[Sequence[DatasetState]], list[Request]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A sensor: what it watches for, how it decides, and which job it starts."""

    name: str
    decide: Decide
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
        description="A new challenger: evaluate it and ask the gate.",
    ),
    Rule(
        name="alias_change",
        decide=decide_linking,
        job=LINK,
        description="A new champion, or a new version: link the newest version with the champion.",
    ),
)


def make_sensors(settings: Settings) -> Sequence[dg.SensorDefinition]:
    """Return the sensors."""
    return [_sensor(settings, rule) for rule in RULES]


def read_state(settings: Settings, instance: dg.DagsterInstance) -> list[DatasetState]:
    """Return what there is of every data set."""
    busy = busy_datasets(instance)
    return [_dataset_state(settings, instance, dataset, dataset.name in busy) for dataset in settings.datasets]


def run_request(request: Request, job: str) -> dg.RunRequest:
    """Return a request in Dagster's words."""
    return dg.RunRequest(
        run_key=request.key,
        job_name=job,
        partition_key=request.dataset,
        asset_selection=[model_key(request.objective, kind) for kind in request.kinds],
        tags={VERSION_TAG: request.version},
    )


def _sensor(settings: Settings, rule: Rule) -> dg.SensorDefinition:
    @dg.sensor(
        name=rule.name,
        job_name=rule.job,
        minimum_interval_seconds=settings.sensor_interval_s,
        description=rule.description,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.is_running else dg.DefaultSensorStatus.STOPPED,
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        requests = rule.decide(read_state(settings, context.instance))
        if not requests:
            return dg.SkipReason("nothing new")
        return dg.SensorResult(run_requests=[run_request(request, rule.job) for request in requests])

    return look


def _dataset_state(
    settings: Settings, instance: dg.DagsterInstance, dataset: DatasetSettings, is_busy: bool
) -> DatasetState:
    newest = next(made(instance, dataset.name, limit=1), None)
    is_sound = (
        newest is not None and newest.is_sound and not is_busy
    )  # else nothing is decided, or asked of the registry
    version, made_in = (newest.version, newest.run_id) if newest is not None else (None, "")
    asked = dataset.objectives if is_sound else ()
    models = tuple(_model_state(settings, dataset.name, version or "", name) for name in asked)
    return DatasetState(
        name=dataset.name, version=version, made_in=made_in, is_sound=is_sound, is_busy=is_busy, models=models
    )


def _model_state(settings: Settings, dataset: str, version: str, objective: str) -> ModelState:
    from training.mlflow.registry import standing
    from training.mlflow.runs import open_tracking

    name = registered_name(dataset, objective)
    found = standing(open_tracking(settings.tracking_uri), name)
    links = Lake.at(settings.lake).links(dataset, version, name, found.champion or "")
    linked = found.champion is not None and links.exists(MANIFEST)
    return ModelState(objective=objective, name=name, linked=linked, **asdict(found))
