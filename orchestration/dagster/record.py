"""Dagster's own record: the keys and tags of what is made, and which data set versions were made.

It knows which version was made last, and which passed every check. A version that was built by hand is not in it;
building it again through Dagster takes seconds and brings the checks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from orchestration.config import Settings
from orchestration.rules.verdicts import STAGE_CHECKS

STAGES = ("documents", "images", "duplicates", "features", "shards")
SCRAPING_POOL, GPU_POOL = "scraping", "gpu"
VERSION_TAG, MODEL_TAG, RUN_TAG = "multilink/data_set_version", "multilink/model", "multilink/mlflow_run"
PARTITION_TAG = "dagster/partition"
VERSION = "version"  # metadata of stages and models: the data set version
_MOST_RECORDS, _MOST_RUNS = 50, 500
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def dataset_partitions(settings: Settings) -> dg.StaticPartitionsDefinition:
    """Return the partitions of every asset: the names of the data sets."""
    return dg.StaticPartitionsDefinition([dataset.name for dataset in settings.datasets])


def model_key(objective: str, kind: str) -> dg.AssetKey:
    """Return the key of what is made of one objective: `cross_document/trained_model`."""
    return dg.AssetKey([group_of(objective), kind])


def group_of(objective: str) -> str:
    """Return an objective's name as Dagster allows it: letters, digits and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in objective)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """A run that made a data set version, or found it to be there already.

    Attributes:
        version: of the data set.
        run_id: Dagster's run.
        is_sound: whether every check of the stages passed when it ran last.
    """

    version: str
    run_id: str
    is_sound: bool


def materializations(
    instance: dg.DagsterInstance, asset: dg.AssetKey, dataset: str, *, limit: int = 1
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the run and the metadata of each materialization of an asset of a data set, newest first."""
    wanted = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[dataset])
    for record in instance.fetch_materializations(wanted, limit=limit).records:
        if record.asset_materialization is not None:
            metadata = record.asset_materialization.metadata
            yield record.run_id, {name: value.value for name, value in metadata.items()}


def version_records(
    instance: dg.DagsterInstance, dataset: str, *, limit: int = _MOST_RECORDS
) -> Iterator[VersionRecord]:
    """Yield the runs that made a data set, newest first."""
    wanted = dg.RunsFilter(tags={PARTITION_TAG: dataset})
    runs = [record.dagster_run.run_id for record in instance.get_run_records(wanted, limit=_MOST_RUNS)]
    for run_id, metadata in materializations(instance, dg.AssetKey("shards"), dataset, limit=limit):
        end = runs.index(run_id) + 1 if run_id in runs else 0
        since, runs = runs[:end] or [run_id], runs[end:]  # checks may run again by themselves
        yield VersionRecord(version=str(metadata[VERSION]), run_id=run_id, is_sound=_is_sound(instance, since))


def sound_before(instance: dg.DagsterInstance, dataset: str, version: str) -> str | None:
    """Return the newest other version that passed its checks: what a new one is compared with."""
    records = version_records(instance, dataset)
    return next((each.version for each in records if each.is_sound and each.version != version), None)


def busy_datasets(instance: dg.DagsterInstance) -> frozenset[str]:
    """Return the data sets that an unfinished run is about."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    return frozenset(run.tags[PARTITION_TAG] for run in runs if PARTITION_TAG in run.tags)


def _is_sound(instance: dg.DagsterInstance, runs: Sequence[str]) -> bool:
    """Return whether every stage check passed when it ran last, in some runs, newest first."""
    passed: dict[tuple[str, str], bool] = {}
    for run_id in runs:
        logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        checks = [entry.get_dagster_event().asset_check_evaluation_data for entry in logs]
        passed = {("/".join(check.asset_key.path), check.check_name): check.passed for check in checks} | passed
    return all(passed.get(check, False) for check in STAGE_CHECKS)
