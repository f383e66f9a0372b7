"""The blocking checks beside their assets: each gathers what a rule of `rules/` needs, and reports its verdict.

A failed check stops what depends on its asset, in the same run and in those that the automation would ask for;
everything else goes on. The version itself stays on disk, to be examined. A check that is run again and passes releases
it.

Dagster's own record has the keys and tags of what is made, which versions were made, and which passed their checks. A
version that was built by hand is not in it; building it again through Dagster takes seconds and brings the checks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, Settings
from orchestration.dagster.external import COUNTED, LEAD, VERSION
from orchestration.rules.verdicts import STAGE_CHECKS, Verdict, VersionOnDisk, better_than_nostruct
from schemas.lake import Lake
from schemas.manifest import read_manifest

STAGES = tuple(COUNTED)
# What is made of an objective, and what people do to its models, which is observed.
TRAINED, EVALUATION, PROMOTION, LINKS, INDEX = KINDS = ("trained_model", "evaluation", "promotion", "links", "index")
APPROVALS, CHAMPION = OBSERVED = ("approvals", "champion")
SCRAPING_POOL, GPU_POOL = "scraping", "gpu"
VERSION_TAG, MODEL_TAG, RUN_TAG = "multilink/data_set_version", "multilink/model", "multilink/mlflow_run"
PARTITION_TAG, DATA_VERSION_TAG = "dagster/partition", "dagster/data_version"
_MOST_RECORDS = 1000  # of a check, over all data sets
_CHECKS = [dg.AssetCheckKey(dg.AssetKey(asset), name) for asset, name in STAGE_CHECKS]


def dataset_partitions(settings: Settings, objective: str = "") -> dg.StaticPartitionsDefinition:
    """Return the partitions of an asset: the data sets, those with the objective where one is named."""
    wanted = (each for each in settings.datasets if not objective or objective in each.objectives)
    return dg.StaticPartitionsDefinition([dataset.name for dataset in wanted])


def model_key(objective: str, kind: str) -> dg.AssetKey:
    """Return the key of what is made of one objective: `cross_document/trained_model`."""
    return dg.AssetKey([group_of(objective), kind])


def group_of(objective: str) -> str:
    """Return an objective's name as Dagster allows it: letters, digits and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in objective)


def is_promoted(objective: str) -> bool:
    """Return whether models of an objective are promoted and link: NoStruct is a baseline."""
    return objective != NOSTRUCT


def newest(instance: dg.DagsterInstance, asset: dg.AssetKey, dataset: str) -> dg.AssetMaterialization | None:
    """Return the last materialization of an asset for a data set."""
    wanted = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[dataset])
    records = instance.fetch_materializations(wanted, limit=1).records
    return records[0].asset_materialization if records else None


def newest_version(instance: dg.DagsterInstance, dataset: str) -> str | None:
    """Return the version of a data set that was made last, or was there already when it was."""
    made = newest(instance, dg.AssetKey("shards"), dataset)
    return None if made is None else str(made.metadata[VERSION].value)


def sound_versions(instance: dg.DagsterInstance, dataset: str) -> Iterator[str]:
    """Yield the versions of a data set that passed every check when it ran last, newest first."""
    results = [_results(instance, check, dataset) for check in _CHECKS]
    yield from (version for version in results[0] if all(each.get(version, False) for each in results))


def _results(instance: dg.DagsterInstance, check: dg.AssetCheckKey, dataset: str) -> dict[str, bool]:
    """Return whether a check passed when it ran last, by version, newest first."""
    found: dict[str, bool] = {}
    for record in instance.event_log_storage.get_asset_check_execution_history(check, limit=_MOST_RECORDS):
        event = record.event and record.event.dagster_event
        if record.partition == dataset and event and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            found.setdefault(str(evaluation.metadata[VERSION].value), evaluation.passed)
    return found


def make_checks(settings: Settings) -> Sequence[dg.AssetChecksDefinition]:
    """Return every check; a model is compared with NoStruct where that is among the objectives."""
    compared = settings.objectives if NOSTRUCT in settings.objectives else ()
    return [
        *(_stage_check(settings, asset, name) for asset, name in STAGE_CHECKS),
        *(_model_check(settings, objective) for objective in compared if is_promoted(objective)),
    ]


def _stage_check(settings: Settings, asset: str, name: str) -> dg.AssetChecksDefinition:
    rule, description = STAGE_CHECKS[asset, name]

    @dg.asset_check(
        asset=asset,
        name=name,
        description=description,
        blocking=True,
        partitions_def=dataset_partitions(settings),
    )
    def run_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        dataset, version = context.run.tags[PARTITION_TAG], _version(context, dg.AssetKey("shards"))
        lake, there = Lake.at(settings.lake), Lake.at(settings.lake).versions(dataset)
        manifest, folder = read_manifest(lake, f"{dataset}@{version}")
        earlier = next((each for each in sound_versions(context.instance, dataset) if each != version), None)
        before = read_manifest(lake, f"{dataset}@{earlier}")[0] if earlier in there else None
        subject = VersionOnDisk(manifest=manifest, folder=folder, before=before, bounds=settings.checks)
        return _result(rule(subject), version)

    return run_check


def _model_check(settings: Settings, objective: str) -> dg.AssetChecksDefinition:
    key = model_key(objective, EVALUATION)

    @dg.asset_check(
        asset=key,
        name=better_than_nostruct.__name__,
        description="The model finds more links than one trained without structure (Hessel 2019).",
        blocking=True,
        partitions_def=dataset_partitions(settings, objective),
    )
    def run_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        version = _version(context, key)
        made = newest(context.instance, key, context.run.tags[PARTITION_TAG])
        lead: Any = made.metadata[LEAD].value if made is not None and LEAD in made.metadata else {}
        score = "auc" if "auc" in lead else "reciprocal_rank"  # where documents are pairs
        return _result(better_than_nostruct(lead.get(score), score=score), version)

    return run_check


def _result(verdict: Verdict, version: str) -> dg.AssetCheckResult:
    metadata = {VERSION: version, **verdict.numbers}
    return dg.AssetCheckResult(passed=verdict.passed, description=verdict.text, metadata=metadata)


def _version(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> str:
    """Return the data set version that an asset was made of last."""
    made = newest(context.instance, key, context.run.tags[PARTITION_TAG])
    if made is None:
        name = key.to_user_string()
        raise dg.Failure(f"{name} of {context.run.tags[PARTITION_TAG]} has never been made", allow_retries=False)
    return str(made.metadata[VERSION].value)
