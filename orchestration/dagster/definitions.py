"""The whole graph, and when its parts are made: what Dagster loads.

    documents -> images -> duplicates -> features -> shards     one operation, job `rebuild`
    all of these -> OBJECTIVE/trained_model -> evaluation -> promotion -> links, index
    OBJECTIVE/approvals -> promotion, OBJECTIVE/champion -> links, index    of people, and of other programs: observed

A partition is a data set; an objective has those that are configured for it. What depends on something that changed is
made by an automation condition, once all that it needs is there and passed its blocking checks: at
https://docs.dagster.io/guides/automate/declarative-automation, on Dagster's page under *Automation*. A failed check
holds its data set alone, until it is run again and passes.

Loading this reads the settings file and nothing else: no network, no credential, no lake. Beam, Ray, torch and MLflow
are imported when a step first needs them. A run is one process, and each of its steps is one of its own or runs on a
cluster (`pipes.py`). What is made, and how, is in `assets.py`; the checks are in `checks.py`.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, DatasetSettings, Settings, load_settings
from orchestration.dagster import assets
from orchestration.dagster.assets import BuildConfig, Task, TrainConfig
from orchestration.dagster.checks import (
    APPROVALS,
    CHAMPION,
    DATA_VERSION_TAG,
    EVALUATION,
    GPU_POOL,
    INDEX,
    LINKS,
    OBSERVED,
    PARTITION_TAG,
    PROMOTION,
    SCRAPING_POOL,
    STAGES,
    TRAINED,
    dataset_partitions,
    group_of,
    is_promoted,
    make_checks,
    model_key,
    newest,
)
from orchestration.dagster.pipes import StepPipes
from orchestration.plan import Plan
from schemas.messages import MultilinkError

REBUILD = "rebuild"
STAGE_MEANINGS = {
    "documents": "Records of the source, filtered into documents.",
    "images": "Pictures of the documents: fetched, checked, kept small.",
    "duplicates": "Near-duplicate pictures, found exactly, and the pictures that the policy kept.",
    "features": "A vector per picture and per sentence.",
    "shards": "The version: Parquet shards by split, and the manifest that makes them real.",
}
OBSERVED_MEANINGS = {
    APPROVALS: "Approvals of the challenger: a waiting promotion is decided again.",
    CHAMPION: "The champion, after a promotion or a rollback by a run or a person.",
}
_QUEUED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the settings file, when Dagster loads them."""
    return make_definitions(load_settings(os.environ))


def make_definitions(settings: Settings, pipes: StepPipes | None = None) -> dg.Definitions:
    """Return the definitions by some settings; `pipes` does the steps in place of the settings' own."""
    plan = Plan(settings=settings)
    rebuild = dg.define_asset_job(
        REBUILD,
        selection=dg.AssetSelection.assets(*STAGES),
        description="Scrape or read the source and build a version of the data set, with its checks.",
    )
    return dg.Definitions(
        assets=[
            make_stages(plan),
            *(each for objective in settings.objectives for each in make_models(plan, objective)),
        ],
        asset_checks=make_checks(settings),
        jobs=[rebuild],
        schedules=[make_schedule(settings, dataset) for dataset in settings.datasets],
        sensors=[make_automation(settings), make_observer(plan)],
        resources={"pipes": pipes or StepPipes(settings.ray)},
        executor=dg.in_process_executor,
    )


def make_stages(plan: Plan) -> dg.AssetsDefinition:
    """Return the stages of a build as assets."""
    settings = plan.settings
    specs = [
        dg.AssetSpec(
            stage,
            deps=[before] if before else [],
            description=STAGE_MEANINGS[stage],
            group_name="data_sets",
            owners=settings.owners,
            freshness_policy=freshness(settings),
            kinds={"python", "beam" if stage != "shards" else "parquet"},
        )
        for before, stage in zip(("", *STAGES), STAGES, strict=False)
    ]

    @dg.multi_asset(
        name="build",
        specs=specs,
        partitions_def=dataset_partitions(settings),
        retry_policy=retry_policy(settings),
        pool=SCRAPING_POOL,
    )
    def build(
        context: dg.AssetExecutionContext, config: BuildConfig, pipes: dg.ResourceParam[StepPipes]
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield from assets.build(context, config, plan, pipes)

    return build


def make_models(plan: Plan, objective: str) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return what is made of an objective; NoStruct is a baseline, which is neither promoted nor used to link."""
    settings = plan.settings

    def key(kind: str) -> dg.AssetKey:
        return model_key(objective, kind)

    def asset(
        kind: str, meaning: str, *deps: dg.AssetKey, kinds: set[str], **more: Any
    ) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
        decorator: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
            key=key(kind),
            deps=deps,
            description=meaning,
            partitions_def=dataset_partitions(settings, objective),
            group_name=group_of(objective),
            owners=settings.owners,
            freshness_policy=freshness(settings),
            retry_policy=retry_policy(settings),
            automation_condition=inputs_changed(objective),
            kinds={"python", *kinds},
            **more,
        )
        return decorator

    def made(kind: str, meaning: str, make: Callable[[Task], assets.Made], *deps: dg.AssetKey, store: str) -> Any:
        @asset(kind, meaning, *deps, kinds={store}, output_required=False)  # without a champion nothing is linked
        def _made(
            context: dg.AssetExecutionContext, pipes: dg.ResourceParam[StepPipes]
        ) -> Iterator[dg.MaterializeResult[Any]]:
            yield from result(Task.of(context, plan, pipes, objective), make)

        return _made

    @asset(
        TRAINED,
        f"The model trained with {objective}, registered as challenger.",
        *map(dg.AssetKey, STAGES),  # the checks of all of them count
        kinds={"ray", "mlflow"},
        pool=GPU_POOL,
    )
    def trained(
        context: dg.AssetExecutionContext, config: TrainConfig, pipes: dg.ResourceParam[StepPipes]
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield from result(Task.of(context, plan, pipes, objective), lambda task: assets.train(task, config))

    compared = [model_key(NOSTRUCT, TRAINED)] if NOSTRUCT in settings.objectives and is_promoted(objective) else []
    meaning = "Scores on the test split with 95% intervals, compared with random and NoStruct; the HTML report."
    evaluation = made(EVALUATION, meaning, assets.evaluate, key(TRAINED), *compared, store="mlflow")
    if not is_promoted(objective):
        return [trained, evaluation]
    gate = "The gate's decision with its reasons; where it promotes, the champion is this model."
    links = "The champion's links of every document of the newest version."
    index = "The newest version's pictures, searchable by the champion."
    applied = (key(PROMOTION), key(CHAMPION))
    return [
        trained,
        evaluation,
        made(PROMOTION, gate, assets.promote, key(EVALUATION), key(APPROVALS), store="mlflow"),
        made(LINKS, links, lambda task: assets.by_champion(task, plan.link), *applied, store="parquet"),
        made(INDEX, index, lambda task: assets.by_champion(task, plan.index), *applied, store="arrow"),
        *(
            dg.AssetSpec(
                key(kind),
                description=OBSERVED_MEANINGS[kind],
                partitions_def=dataset_partitions(settings, objective),
                group_name=group_of(objective),
                kinds={"mlflow"},
            )
            for kind in OBSERVED
        ),
    ]


def result(task: Task, make: Callable[[Task], assets.Made]) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield what was made, where something was; a mistake is not tried again."""
    with assets.mistakes_are_final():
        made = make(task)
    if made is not None:
        yield made


def inputs_changed(objective: str) -> dg.AutomationCondition[dg.AssetKey]:
    """Return when an asset of an objective is made: an input is another than before, and all are there and sound.

    What failed for good, or is not there, is made after the next time that its inputs were, whatever they are then.
    Nobody has to approve, so that approvals may be missing.
    """
    condition, approvals = dg.AutomationCondition, dg.AssetSelection.assets(model_key(objective, APPROVALS))
    changed = condition.any_deps_match(condition.data_version_changed() | condition.will_be_requested())
    again = condition.any_deps_updated() & (condition.missing() | condition.execution_failed())
    return (
        (changed | again).since_last_handled()
        & ~condition.any_deps_missing().ignore(approvals)
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & condition.all_deps_blocking_checks_passed()
    ).with_label("inputs_changed")


def make_automation(settings: Settings) -> dg.AutomationConditionSensorDefinition:
    """Return what asks for the assets whose condition is true."""
    return dg.AutomationConditionSensorDefinition(
        "automation",
        target=dg.AssetSelection.all(),
        default_status=_sensor_status(settings),
        minimum_interval_seconds=settings.sensor_interval_s,
        description="Starts trainings of a new version, evaluations, promotions, links and indexes that are due.",
    )


def make_observer(plan: Plan) -> dg.SensorDefinition:
    """Return what reports approvals and champions that the registry has, and Dagster has not seen."""

    @dg.sensor(
        name="registry",
        minimum_interval_seconds=plan.settings.sensor_interval_s,
        default_status=_sensor_status(plan.settings),
        description="Looks for approvals, promotions and rollbacks that happened elsewhere.",
    )
    def registry(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        events: list[dg.AssetMaterialization] = []
        for dataset in plan.settings.datasets:
            try:
                for objective in filter(is_promoted, dataset.objectives):
                    events += unseen(context.instance, plan, dataset.name, objective)
            except MultilinkError as problem:  # of this data set; the others go on
                context.log.error(f"{dataset.name}: {problem}")
        return dg.SensorResult(asset_events=events) if events else dg.SkipReason("nothing new")

    return registry


def unseen(instance: dg.DagsterInstance, plan: Plan, dataset: str, objective: str) -> Iterator[dg.AssetMaterialization]:
    """Yield what the registry says of a data set's model with an objective, if it is not Dagster's last word on it."""
    for kind, value in plan.standing(dataset, objective).items():
        seen = newest(instance, model_key(objective, kind), dataset)
        if value and (seen is None or (seen.tags or {}).get(DATA_VERSION_TAG) != value):
            yield assets.observed(objective, kind, dataset, value)


def make_schedule(settings: Settings, dataset: DatasetSettings) -> dg.ScheduleDefinition:
    """Return the schedule of a data set's rebuilds: one that is due while another run is about it waits its turn."""

    @dg.schedule(
        name=f"rebuild_{group_of(dataset.name)}",
        job_name=REBUILD,
        cron_schedule=dataset.schedule,
        execution_timezone=settings.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.is_running else dg.DefaultScheduleStatus.STOPPED,
        description=f"Rebuild {dataset.name}.",
    )
    def rebuild(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        waiting = dg.RunsFilter(job_name=REBUILD, statuses=_QUEUED, tags={PARTITION_TAG: dataset.name})
        if context.instance.get_runs(waiting, limit=1):
            return dg.SkipReason(f"a rebuild of {dataset.name} waits already")
        return dg.RunRequest(partition_key=dataset.name)

    return rebuild


def freshness(settings: Settings) -> dg.FreshnessPolicy | None:
    """Return when an asset counts as stale."""
    hours = settings.fresh_within_hours
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours)) if hours else None


def retry_policy(settings: Settings) -> dg.RetryPolicy:
    """Return how a failed step is repeated: after a while that doubles, and varies a little."""
    return dg.RetryPolicy(
        max_retries=settings.retries.attempts,
        delay=settings.retries.delay_s,
        backoff=dg.Backoff.EXPONENTIAL,
        jitter=dg.Jitter.PLUS_MINUS,
    )


def _sensor_status(settings: Settings) -> dg.DefaultSensorStatus:
    return dg.DefaultSensorStatus.RUNNING if settings.is_running else dg.DefaultSensorStatus.STOPPED
