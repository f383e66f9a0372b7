"""The blocking checks beside their assets: each gathers what a rule of `verdicts.py` needs, and reports what it says.

A check that says no stops what depends on its asset in the same run, and the sensors pass over the version; everything
else goes on. The version itself stays on disk, for a look.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, CheckSettings, Settings
from orchestration.dagster.assets import LEAD, LEADING
from orchestration.dagster.history import newest_version, sound_before
from orchestration.dagster.names import PARTITION_TAG, dataset_partitions, model_key
from orchestration.dagster.resources import Pipelines
from orchestration.rules.decisions import EVALUATION
from orchestration.rules.verdicts import (
    Verdict,
    VersionOnDisk,
    better_than_nostruct,
    counts_in_bounds,
    duplicate_free,
    leak_free,
    manifest_verifies,
    norms_are_sane,
    within_failure_budget,
)
from schemas.failures import Stage
from schemas.lake import Lake
from schemas.manifest import read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCheck:
    """A rule about a version, and the asset it guards."""

    asset: str
    name: str
    rule: Callable[[VersionOnDisk], Verdict]
    description: str


STAGE_CHECKS = (
    StageCheck(
        asset="documents",
        name="failure_budget",
        rule=partial(within_failure_budget, stages=(Stage.SOURCES, Stage.DOCUMENTS)),
        description="No more than a share of the records could not be used.",
    ),
    StageCheck(
        asset="documents",
        name="counts_in_bounds",
        rule=counts_in_bounds,
        description="About as many documents as the sound version before.",
    ),
    StageCheck(
        asset="images",
        name="failure_budget",
        rule=partial(within_failure_budget, stages=(Stage.IMAGES,)),
        description="No more than a share of the images could not be had.",
    ),
    StageCheck(
        asset="duplicates",
        name="duplicate_free",
        rule=duplicate_free,
        description="No two documents show near-duplicate pictures.",
    ),
    StageCheck(
        asset="features",
        name="norms_are_sane",
        rule=norms_are_sane,
        description="Every vector is finite, of a sane length, and they differ.",
    ),
    StageCheck(
        asset="shards",
        name="manifest_verifies",
        rule=manifest_verifies,
        description="Every byte is what the manifest says.",
    ),
    StageCheck(
        asset="shards",
        name="leak_free",
        rule=leak_free,
        description="No picture and no whole text is in two splits.",
    ),
)
BETTER_THAN_NOSTRUCT = "better_than_nostruct"


def make_checks(settings: Settings) -> Sequence[dg.AssetChecksDefinition]:
    """Return every check."""
    others = [objective for objective in settings.objectives if objective != NOSTRUCT]
    return [
        *(_stage_check(settings, check) for check in STAGE_CHECKS),
        *(_model_check(settings, objective) for objective in others),
    ]


def _stage_check(settings: Settings, check: StageCheck) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=check.asset,
        name=check.name,
        description=check.description,
        blocking=True,
        partitions_def=dataset_partitions(settings),
    )
    def run_check(context: dg.AssetCheckExecutionContext, pipelines: Pipelines) -> dg.AssetCheckResult:
        subject = _subject(context, pipelines, settings.checks)
        return result_of(check.rule(subject))

    return run_check


def _model_check(settings: Settings, objective: str) -> dg.AssetChecksDefinition:
    key = model_key(objective, EVALUATION)

    @dg.asset_check(
        asset=key,
        name=BETTER_THAN_NOSTRUCT,
        description="The model is shown to find more links than one that is shown no structure (Hessel 2019).",
        blocking=True,
        partitions_def=dataset_partitions(settings),
    )
    def run_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        told = newest_metadata(context, key)
        dataset = settings.dataset(_partition(context))
        verdict = better_than_nostruct(told.get(LEAD), score=told.get(LEADING, "auc"))
        compared = NOSTRUCT in dataset.objectives
        return result_of(verdict, severity=dg.AssetCheckSeverity.ERROR if compared else dg.AssetCheckSeverity.WARN)

    return run_check


def result_of(
    verdict: Verdict, *, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    """Return a verdict as Dagster keeps it."""
    return dg.AssetCheckResult(
        passed=verdict.passed, severity=severity, description=verdict.text, metadata=dict(verdict.numbers)
    )


def newest_metadata(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> dict[str, Any]:
    """Return the values an asset told when it was made last for the run's data set."""
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[_partition(context)])
    record = next(iter(context.instance.fetch_materializations(wanted, limit=1).records), None)
    told = None if record is None else record.asset_materialization
    if told is None:
        raise dg.Failure(f"{key.to_user_string()} of {_partition(context)} has never been made", allow_retries=False)
    return {name: value.value for name, value in told.metadata.items()}


def _subject(context: dg.AssetCheckExecutionContext, pipelines: Pipelines, bounds: CheckSettings) -> VersionOnDisk:
    dataset = _partition(context)
    version = newest_version(context.instance, dataset)
    if version is None:
        raise dg.Failure(f"{dataset} has no version yet; run the job rebuild", allow_retries=False)
    lake = Lake.at(pipelines.lake)
    manifest, folder = read_manifest(lake, f"{dataset}@{version}")
    earlier = sound_before(context.instance, dataset, version)
    is_there = earlier is not None and earlier in lake.versions(dataset)
    before = read_manifest(lake, f"{dataset}@{earlier}")[0] if is_there else None
    return VersionOnDisk(manifest=manifest, folder=folder, before=before, bounds=bounds)


def _partition(context: dg.AssetCheckExecutionContext) -> str:
    return context.run.tags[PARTITION_TAG]
