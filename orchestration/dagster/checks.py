"""The blocking checks beside their assets: each gathers what a rule of `rules/` needs, and reports its verdict.

A failed check stops what depends on its asset in the same run, and the sensors pass over the version; everything else
goes on. The version itself stays on disk, to be examined.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, CheckSettings, Settings
from orchestration.dagster.assets import LEAD, LEADING
from orchestration.dagster.record import (
    PARTITION_TAG,
    VERSION,
    dataset_partitions,
    materializations,
    model_key,
    sound_before,
)
from orchestration.rules.decisions import EVALUATION
from orchestration.rules.verdicts import STAGE_CHECKS, Verdict, VersionOnDisk, better_than_nostruct
from schemas.lake import Lake
from schemas.manifest import read_manifest


def make_checks(settings: Settings) -> Sequence[dg.AssetChecksDefinition]:
    """Return every check."""
    others = [objective for objective in settings.objectives if objective != NOSTRUCT]
    return [
        *(_stage_check(settings, asset, name) for asset, name in STAGE_CHECKS),
        *(_model_check(settings, objective) for objective in others),
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
        return _result(rule(_subject(context, Lake.at(settings.lake), settings.checks)))

    return run_check


def _model_check(settings: Settings, objective: str) -> dg.AssetChecksDefinition:
    key = model_key(objective, EVALUATION)

    @dg.asset_check(
        asset=key,
        name=better_than_nostruct.__name__,
        description="The model finds more links than one trained without structure (Hessel 2019).",
        blocking=True,
        partitions_def=dataset_partitions(settings),
    )
    def run_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        dataset, scores = _newest(context, key)
        verdict = better_than_nostruct(scores.get(LEAD), score=scores.get(LEADING, "auc"))
        is_compared = NOSTRUCT in settings.dataset(dataset).objectives
        return _result(verdict, dg.AssetCheckSeverity.ERROR if is_compared else dg.AssetCheckSeverity.WARN)

    return run_check


def _result(verdict: Verdict, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=verdict.passed, severity=severity, description=verdict.text, metadata=dict(verdict.numbers)
    )


def _newest(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> tuple[str, dict[str, Any]]:
    """Return the run's data set, and the metadata of the last materialization of an asset for it."""
    dataset = context.run.tags[PARTITION_TAG]
    for _, metadata in materializations(context.instance, key, dataset):
        return dataset, metadata
    raise dg.Failure(f"{key.to_user_string()} of {dataset} has never been made", allow_retries=False)


def _subject(context: dg.AssetCheckExecutionContext, lake: Lake, bounds: CheckSettings) -> VersionOnDisk:
    dataset, shards = _newest(context, dg.AssetKey("shards"))
    manifest, folder = read_manifest(lake, f"{dataset}@{shards[VERSION]}")
    earlier = sound_before(context.instance, dataset, manifest.version)
    is_there = earlier is not None and earlier in lake.versions(dataset)
    before = read_manifest(lake, f"{dataset}@{earlier}")[0] if is_there else None
    return VersionOnDisk(manifest=manifest, folder=folder, before=before, bounds=bounds)
