"""What a build did, put together as its manifest; and the name of its version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.config import BuildConfig
from pipelines.features.plan import FeaturePlan
from pipelines.images.copies import METHOD
from pipelines.shards.statistics import DocumentSize, summarise
from pipelines.sources.readers import path_settings
from pipelines.sources.takedowns import Takedowns
from pipelines.splits.leaks import LeakCount
from schemas.configs import Json, resolve
from schemas.documents import DOCUMENT_VERSION, Split
from schemas.duplicates import DUPLICATE_VERSION
from schemas.failures import FAILURE_VERSION
from schemas.images import IMAGE_VERSION
from schemas.leaks import LEAK_VERSION
from schemas.manifest import FileEntry, Manifest, SplitStatistics
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

SizeKey = tuple[str, int, int, int | None]  # split; sentences, images and links of a document: a `DocumentSize`


class StageCount(NamedTuple):
    """How many elements a stage passed on (`out`), rejected by a rule (`rejected`), or could not use (`failed`)."""

    stage: str
    field: str
    elements: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """Everything a finished build knows of itself: counts, whose number does not grow with the documents'.

    Attributes:
        files: every part of the version.
        sizes: documents of each split and size.
        unique_images: different images of each split that has any.
        leaks: of each kind and pair of splits.
        heeded_leaks: those of them that are heeded (`splits.leak_kinds`).
    """

    features: FeaturePlan
    files: Iterable[FileEntry]
    sizes: Mapping[SizeKey, int]
    unique_images: Mapping[str, int]
    reasons: Mapping[str, int]
    stages: Sequence[StageCount]
    digest: int
    leaks: Iterable[LeakCount]
    heeded_leaks: Iterable[LeakCount]


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


def compose_manifest(config: BuildConfig, version: str, facts: BuildFacts) -> Manifest:
    """Return the manifest of a finished build."""
    return Manifest(
        dataset=config.dataset,
        version=version,
        files=tuple(sorted(facts.files)),
        splits={str(split): _statistics(split, facts) for split in Split},
        failures=dict(sorted(facts.reasons.items())),
        stages=_stages(facts.stages),
        features={"images": facts.features.images, "documents": facts.features.sentences},
        config=content_config(config),
        inputs={"records": f"{facts.digest:064x}", **_extractor_inputs(facts.features)},
        schema_versions=SCHEMA_VERSIONS,
        code_version=code_version(),
        notes={"leaks": _counts(facts.leaks), "heeded_leaks": _counts(facts.heeded_leaks)},
    )


def _counts(leaks: Iterable[LeakCount]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(count) for count in sorted(leaks)]


def _extractor_inputs(features: FeaturePlan) -> dict[str, str]:
    return {f"extractors.{name}": value for name, value in features.fingerprints}


def _statistics(split: Split, facts: BuildFacts) -> SplitStatistics:
    sizes = {
        DocumentSize(sentences, images, links): documents
        for (name, sentences, images, links), documents in facts.sizes.items()
        if name == split
    }
    return summarise(sizes, unique_images=facts.unique_images.get(str(split), 0))


def _stages(counts: Sequence[StageCount]) -> dict[str, dict[str, Any]]:
    stages: dict[str, dict[str, Any]] = {}
    for count in sorted(counts):
        stages.setdefault(count.stage, {"out": 0, "rejected": 0, "failed": 0})[count.field] = count.elements
    return {stage: {"in": sum(row.values()), **row} for stage, row in stages.items()}
