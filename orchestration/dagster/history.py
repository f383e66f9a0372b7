"""What Dagster's own record says of data set versions: which was made last, and which passed every check.

A version that was built by hand is not in it; building it again through Dagster takes seconds and brings the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from orchestration.dagster.names import PARTITION_TAG, SHARDS, STAGES, VERSION

_LOOKED_AT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A time that a data set version was made, or found to be there already.

    Attributes:
        version: of the data set.
        run_id: Dagster's run.
        is_sound: whether all checks of the stages ran in it and said yes.
    """

    version: str
    run_id: str
    is_sound: bool


def newest_version(instance: dg.DagsterInstance, dataset: str) -> str | None:
    """Return the version of a data set that was made last, whatever its checks said, or None."""
    newest = next(_materialisations(instance, dataset, limit=1), None)
    return None if newest is None else newest[0]


def made(instance: dg.DagsterInstance, dataset: str, *, limit: int = _LOOKED_AT) -> Iterator[Made]:
    """Yield the times a data set was made, newest first."""
    for version, run_id in _materialisations(instance, dataset, limit=limit):
        yield Made(version=version, run_id=run_id, is_sound=_is_sound(instance, run_id))


def sound_before(instance: dg.DagsterInstance, dataset: str, version: str) -> str | None:
    """Return the newest other version that passed its checks: what a new one is compared with."""
    others = (each.version for each in made(instance, dataset) if each.is_sound and each.version != version)
    return next(others, None)


def busy_datasets(instance: dg.DagsterInstance) -> frozenset[str]:
    """Return the data sets that an unfinished run is about."""
    states = [
        dg.DagsterRunStatus.QUEUED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
    runs = instance.get_runs(dg.RunsFilter(statuses=states))
    return frozenset(run.tags[PARTITION_TAG] for run in runs if PARTITION_TAG in run.tags)


def _materialisations(instance: dg.DagsterInstance, dataset: str, *, limit: int) -> Iterator[tuple[str, str]]:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(SHARDS), asset_partitions=[dataset])
    for record in instance.fetch_materializations(wanted, limit=limit).records:
        told = record.asset_materialization
        if told is not None and VERSION in told.metadata:
            yield str(told.metadata[VERSION].value), record.run_id


def _is_sound(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether every stage check of a run said yes; a run whose checks did not come to run said nothing."""
    from orchestration.dagster.checks import STAGE_CHECKS

    expected = {(check.asset, check.name) for check in STAGE_CHECKS}
    passed: set[tuple[str, str]] = set()
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        if entry.dagster_event is None:
            continue
        told = entry.dagster_event.asset_check_evaluation_data
        key = ("/".join(told.asset_key.path), told.check_name)
        if told.asset_key.path[0] in STAGES and not told.passed:
            return False
        passed.add(key)
    return expected <= passed
