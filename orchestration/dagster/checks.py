"""The blocking checks beside their assets: each gathers what a rule of `rules/` needs, and reports its verdict.

A failed check stops what depends on its asset, in the same run and in those that the automation would ask for;
everything else goes on. The version itself stays on disk, to be examined. A check that is run again and passes releases
it.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from orchestration.config import NOSTRUCT, Settings
from orchestration.dagster.external import LEAD, VERSION
from orchestration.dagster.record import (
    EVALUATION,
    PARTITION_TAG,
    dataset_partitions,
    is_promoted,
    model_key,
    newest,
    sound_versions,
)
from orchestration.rules.verdicts import STAGE_CHECKS, Verdict, VersionOnDisk, better_than_nostruct
from schemas.lake import Lake
from schemas.manifest import read_manifest


def make_checks(settings: Settings) -> Sequence[dg.AssetChecksDefinition]:
    """Return every check."""
    return [
        *(_stage_check(settings, asset, name) for asset, name in STAGE_CHECKS),
        *(_model_check(settings, objective) for objective in settings.objectives if is_promoted(objective)),
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
        verdict = better_than_nostruct(lead.get(score), score=score)
        is_compared = NOSTRUCT in settings.dataset(context.run.tags[PARTITION_TAG]).objectives
        return _result(verdict, version, dg.AssetCheckSeverity.ERROR if is_compared else dg.AssetCheckSeverity.WARN)

    return run_check


def _result(
    verdict: Verdict, version: str, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    metadata = {VERSION: version, **verdict.numbers}
    return dg.AssetCheckResult(passed=verdict.passed, severity=severity, description=verdict.text, metadata=metadata)


def _version(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> str:
    """Return the data set version that an asset was made of last."""
    made = newest(context.instance, key, context.run.tags[PARTITION_TAG])
    if made is None:
        name = key.to_user_string()
        raise dg.Failure(f"{name} of {context.run.tags[PARTITION_TAG]} has never been made", allow_retries=False)
    return str(made.metadata[VERSION].value)
