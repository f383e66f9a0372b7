"""Dagster's own record: the keys and tags of what is made, which versions were made, and which passed their checks.

A version that was built by hand is not in it; building it again through Dagster takes seconds and brings the checks.
"""

from collections.abc import Iterator

import dagster as dg

from orchestration.config import NOSTRUCT, Settings
from orchestration.dagster.external import COUNTED, VERSION
from orchestration.rules.verdicts import STAGE_CHECKS

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
