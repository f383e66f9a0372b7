"""What a build did, put together as its manifest; and the name of its version."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.config import BuildConfig
from pipelines.counts import stage_table
from pipelines.features.plan import FeaturePlan
from pipelines.images.copies import METHOD
from pipelines.shards.statistics import summarise
from pipelines.shards.writing import ShardSummary
from pipelines.sources.inputs import path_settings
from pipelines.sources.takedowns import Takedowns
from pipelines.splits.leaks import LeakCount
from schemas.configs import Json, resolve
from schemas.documents import DOCUMENT_VERSION, Split
from schemas.duplicates import DUPLICATE_VERSION
from schemas.failures import FAILURE_VERSION
from schemas.images import IMAGE_VERSION
from schemas.leaks import LEAK_VERSION
from schemas.manifest import Manifest, SplitStatistics
from schemas.versions import code_version, version_of

SCHEMA_VERSIONS = {
    "documents": DOCUMENT_VERSION,
    "images": IMAGE_VERSION,
    "failures": FAILURE_VERSION,
    "duplicates": DUPLICATE_VERSION,
    "leaks": LEAK_VERSION,
}
# Settings of features that change the speed, or that the extractors' fingerprints stand for.
_COMPUTING = frozenset({"weights", "device", "precision", "batch_images", "threads"})


def content_config(config: BuildConfig) -> dict[str, Json]:
    """Return the settings that change what is built: all but `http`, budgets, computing and places of files.

    Weights and, where values depend on it, the precision are in the fingerprints of the extractors.
    """
    values = resolve(config)
    del values["http"], values["max_failure_share"], values["takedown_list"]
    values["takedowns"] = Takedowns(config.takedowns).fingerprint  # not the entries: they would name what must go
    source, features = values["source"], values["features"]
    if isinstance(source, dict) and isinstance(features, dict):
        places = path_settings(config.source)  # their content is fingerprinted instead
        values["source"] = {name: value for name, value in source.items() if name not in places}
        values["features"] = {name: value for name, value in features.items() if name not in _COMPUTING}
    return values


def build_identity(config: BuildConfig, extractors: Mapping[str, str]) -> dict[str, Any]:
    """Return all that decides what a build makes of its inputs: settings, extractors, copies, schemas and code."""
    return {
        "config": content_config(config),
        "extractors": dict(extractors),
        "copies": METHOD,
        "schemas": SCHEMA_VERSIONS,
        "code": code_version(),
    }


def version_name(config: BuildConfig, extractors: Mapping[str, str], digest: int) -> str:
    """Return the version of a build: a fingerprint of what decides it and of its inputs."""
    return version_of({**build_identity(config, extractors), "inputs": f"{digest:064x}"})


def compose_manifest(config: BuildConfig, features: FeaturePlan, facts: Mapping[str, Sequence[Any]]) -> Manifest:
    """Return the manifest of a finished build.

    Args:
        facts: `version`, `digest`; `shards`, a summary each; `files` of the tables; `stages`, `reasons`, and counts of
            `leaks` and `heeded_leaks`.
    """
    (version,), (digest,) = facts["version"], facts["digest"]
    shards: Sequence[ShardSummary] = facts["shards"]
    return Manifest(
        dataset=config.dataset,
        version=version,
        files=tuple(sorted([*facts["files"], *(entry for shard in shards for entry in shard.entries)])),
        splits={str(split): _statistics([shard for shard in shards if shard.split is split]) for split in Split},
        failures=dict(sorted(facts.get("reasons", ()))),
        stages=stage_table(facts["stages"]),
        features={"images": features.images, "documents": features.sentences},
        config=content_config(config),
        inputs={"records": f"{digest:064x}", **_extractor_inputs(features)},
        schema_versions=SCHEMA_VERSIONS,
        code_version=code_version(),
        notes={"leaks": _counts(facts.get("leaks", ())), "heeded_leaks": _counts(facts.get("heeded_leaks", ()))},
    )


def _counts(leaks: Iterable[LeakCount]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(count) for count in sorted(leaks)]


def _extractor_inputs(features: FeaturePlan) -> dict[str, str]:
    return {f"extractors.{name}": value for name, value in features.fingerprints}


def _statistics(shards: Sequence[ShardSummary]) -> SplitStatistics:
    sizes = Counter(size for shard in shards for size in shard.sizes)
    return summarise(sizes, unique_images=len({image for shard in shards for image in shard.image_hashes}))
