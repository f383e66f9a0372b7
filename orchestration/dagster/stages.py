"""The stages of a data set version: documents, images, duplicates, features, shards.

One operation makes all five, because a build is one Beam pipeline that computes its version inside: no stage can be had
without the others. Each asset tells the counts of its own stage, and has its own checks (`checks.py`).
Repeating the operation is cheap: what was fetched is not fetched again, and the same inputs give the same version.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.config import DatasetSettings, RetrySettings, Settings
from orchestration.dagster.names import SCRAPING_POOL, STAGES, VERSION, VERSION_TAG, dataset_partitions
from orchestration.dagster.resources import Pipelines
from orchestration.steps import Summary
from schemas.configs import resolve
from schemas.failures import Stage

# asset -> stages of the build that it tells of
COUNTED = {
    "documents": (Stage.SOURCES, Stage.DOCUMENTS, Stage.RULES),
    "images": (Stage.IMAGES,),
    "duplicates": (Stage.DEDUPE,),
    "features": (Stage.FEATURES,),
    "shards": (Stage.SHARDS,),
}
_MEANING = {
    "documents": "Records of the source, filtered into documents.",
    "images": "Pictures of the documents: fetched, checked, kept small.",
    "duplicates": "Near-duplicate pictures, found exactly; what the policy left.",
    "features": "A vector per picture and per sentence.",
    "shards": "The version: Parquet shards by split, and the manifest that makes them real.",
}


def make_stages(settings: Settings) -> dg.AssetsDefinition:
    """Return the stages of a build as assets."""

    @dg.multi_asset(
        name="build",
        specs=[_spec(place, stage) for place, stage in enumerate(STAGES)],
        partitions_def=dataset_partitions(settings),
        retry_policy=retry_policy(settings.retries),
        pool=SCRAPING_POOL,
    )
    def build(context: dg.AssetExecutionContext, pipelines: Pipelines) -> Iterator[dg.MaterializeResult[None]]:
        dataset = settings.dataset(context.partition_key)
        summary = pipelines.build(dataset, context.log.info)
        context.instance.add_run_tags(context.run.run_id, {VERSION_TAG: summary["version"]})
        for stage in STAGES:
            yield dg.MaterializeResult(
                asset_key=stage,
                metadata=stage_metadata(stage, summary, dataset),
                data_version=dg.DataVersion(summary["version"]),
            )

    return build


def stage_metadata(stage: str, summary: Summary, dataset: DatasetSettings) -> dict[str, Any]:
    """Return what an asset tells of its stage: the version, where it is, what went in and out, and the settings."""
    counts = {name: row for name, row in summary["stages"].items() if name in COUNTED[stage]}
    told: dict[str, Any] = {
        VERSION: summary["version"],
        "path": dg.MetadataValue.path(summary["path"]),
        "reused": summary["reused"],
        "counts": counts,
        "configuration": resolve(dataset),
    }
    for row in counts.values():
        told |= {"in": row["in"], "out": row["out"], "rejected": row["rejected"], "failed": row["failed"]}
    if stage == "shards":
        told |= {"splits": summary["splits"], "dagster/row_count": _documents(summary)}
    if stage == "documents":
        told["failures"] = summary["failures"]
    return told


def retry_policy(retries: RetrySettings) -> dg.RetryPolicy:
    """Return how a failed step is repeated: after a while that doubles, and varies a little."""
    return dg.RetryPolicy(
        max_retries=retries.attempts,
        delay=retries.delay_s,
        backoff=dg.Backoff.EXPONENTIAL,
        jitter=dg.Jitter.PLUS_MINUS,
    )


def _spec(place: int, stage: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        stage,
        deps=[STAGES[place - 1]] if place else [],
        description=_MEANING[stage],
        group_name="data_sets",
        kinds={"python", "beam" if stage != "shards" else "parquet"},
    )


def _documents(summary: Summary) -> int:
    return sum(int(row["documents"]) for row in summary["splits"].values())
