"""Names that several parts share: partitions, pools, tags, metadata keys, and the key of each asset."""

from __future__ import annotations

import dagster as dg

from orchestration.config import Settings

STAGES = ("documents", "images", "duplicates", "features", "shards")
SCRAPING_POOL, GPU_POOL = "scraping", "gpu"
VERSION_TAG, MODEL_TAG, RUN_TAG = "multilink/data_set_version", "multilink/model", "multilink/mlflow_run"
PARTITION_TAG = "dagster/partition"
VERSION = "version"  # metadata of stages and models: the data set version


def dataset_partitions(settings: Settings) -> dg.StaticPartitionsDefinition:
    """Return the partitions of every asset: the names of the data sets."""
    return dg.StaticPartitionsDefinition([dataset.name for dataset in settings.datasets])


def model_key(objective: str, kind: str) -> dg.AssetKey:
    """Return the key of what is made of one objective: `cross_document/trained_model`."""
    return dg.AssetKey([group_of(objective), kind])


def group_of(objective: str) -> str:
    """Return an objective's name as Dagster allows it: letters, digits and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in objective)
