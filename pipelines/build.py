"""The pipeline of a build: one statement a stage, in the order of the data.

    sources -> documents -> images -> dedupe -> splits -> features -> copy detection -> shards -> manifest (a draft)

Everything up to settled documents touches the outside world, through the answers kept in `raw/`. What follows is a
function of those documents and the configuration. The fingerprint of both names the version, and is known inside the
pipeline before a shard is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import apache_beam as beam

from pipelines.config import content_config
from pipelines.copy_detection.transforms import by_vector
from pipelines.dedupe.transforms import DropDuplicates, by_hash
from pipelines.documents.transforms import FilterCandidates, JudgeDocuments, SettleDocuments
from pipelines.features.extraction import FeaturePlan
from pipelines.features.transforms import ExtractFeatures
from pipelines.images.obtain import ImageAccess
from pipelines.images.packed import copy_packs
from pipelines.images.transforms import ObtainImages
from pipelines.progress import Progress
from pipelines.quality.transforms import FilterQuality
from pipelines.recipe import BuildConfig
from pipelines.shards.manifest import build_identity, compose_manifest, version_of_build
from pipelines.shards.transforms import (
    DigestInputs,
    ExplainFailures,
    KeepCommonest,
    ListRights,
    WriteShards,
    WriteTables,
)
from pipelines.shards.writing import ShardWriter
from pipelines.sources.source import Context
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.transforms import ReadSource
from pipelines.splits.transforms import AssignSplits, DropLeaks, ListLeaks
from pipelines.transforms import CountThings, GatherFacts, ListOutcomes, as_facts
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, NEAR_COPY_SCHEMA
from schemas.errors import BuildError
from schemas.failures import FAILURE_SCHEMA, TRANSIENT, Failure, Stage
from schemas.lake import DRAFTS, MANIFEST, Folder, Lake
from schemas.manifest import FileEntry
from schemas.raw import UNREACHED

_SCHEMAS = {
    "failures": FAILURE_SCHEMA,
    UNREACHED: FAILURE_SCHEMA,
    "duplicates": DUPLICATE_SCHEMA,
    "near-copies": NEAR_COPY_SCHEMA,
    "leaks": LEAK_SCHEMA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build with everything that was decided before it starts.

    Attributes:
        features: which there are, and what computes them.
        files: folder or archive that names of image files are looked up in.
        name: of the build: of its ledger, and of the draft of its manifest in `builds/`.
        shares: parts that hosts are divided into.
        begin: passes on what the first step begins with, and leaves a sign of it; None: no sign is asked for.
    """

    config: BuildConfig
    lake: Lake
    features: FeaturePlan
    progress: Progress
    files: str
    name: str
    shares: int = 1
    begin: Callable[[str], str] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return all that decides what the build makes of what it reads."""
        return identity_of(self.config, self.features)

    @property
    def draft(self) -> str:
        """Return the name of the file in `builds/` that the manifest's draft is written to."""
        return f"{DRAFTS}/{self.config.dataset}-{self.name}.json"

    def folder(self, version: str) -> Folder:
        """Return where a version is written: one that is there is not touched before it is known to be the same."""
        folder = self.lake.dataset(self.config.dataset, version)
        return self.beside if folder.exists(MANIFEST) else folder

    @property
    def beside(self) -> Folder:
        """Return the folder of a version that is built again."""
        return self.lake.dataset(self.config.dataset, self.name)

    @property
    def ledger(self) -> Folder:
        return self.lake.ledger(self.config.dataset, self.name)

    @property
    def access(self) -> ImageAccess:
        config = self.config
        return ImageAccess(
            http=config.http,
            raw=self.lake.raw,
            copies=copy_packs(self.lake, config.images, config.dedupe.fingerprint),
            files=self.files,
            features=self.features.given or None,
            config=config.images,
            fingerprint=config.dedupe.fingerprint,
            takedowns=Takedowns(config.takedowns),
            ledger=self.ledger,
        )


def identity_of(config: BuildConfig, features: FeaturePlan) -> dict[str, Any]:
    """Return all that decides what a build makes of what it reads, the code that makes its bytes included."""
    modules = (__name__, type(config.source).__module__, *features.modules)
    return build_identity(content_config(config), features.fingerprints, modules)


def chain_stages(root: beam.Pipeline, plan: BuildPlan) -> None:
    """Add every stage of a build to a pipeline, its tables, and what its manifest is made of."""
    stages = _stages(root, plan)
    files = _tables(stages, plan)
    _ = _facts(root, stages, files, plan) | "gather" >> GatherFacts() | "manifest" >> beam.Map(_write_result, plan=plan)


def _stages(root: beam.Pipeline, plan: BuildPlan) -> SimpleNamespace:
    """Return what each stage gives, by its name."""
    config, lake, access, progress = plan.config, plan.lake, plan.access, plan.progress
    writer = ShardWriter(
        lake=lake, dataset=config.dataset, folder=plan.folder, copies=access.copies, features=plan.features
    )

    sources = root | "sources" >> ReadSource(
        source=config.source,
        context=Context(
            http=config.http,
            raw=lake.raw,
            ledger=plan.ledger,
            takedowns=access.takedowns,
            min_images=config.documents.min_images,
        ),
        progress=progress,
        begin=plan.begin,
    )
    first = config.documents.before_dedupe
    candidates = sources.results | "documents" >> FilterCandidates(first, access.takedowns)
    images = candidates.results | "images" >> ObtainImages(access, progress, plan.shares)
    settled = candidates.results | "settle" >> SettleDocuments(first, images)
    read = (sources.failures, candidates.failures, settled.failures) | "failures of reading" >> beam.Flatten()
    digest = (settled.results, read) | "inputs" >> DigestInputs()
    version = digest | "version" >> beam.Map(_version, identity=plan.identity, plan=plan)
    alike, copies = by_hash(config.dedupe.radius), by_vector(config.copy_detection, plan.features)
    unique = settled.results | "dedupe" >> DropDuplicates(alike, config.dedupe.policy, Stage.DEDUPE)
    ruled = unique.documents | "rules" >> JudgeDocuments(config.documents)
    sound = ruled.results | "quality" >> FilterQuality(config.quality, config.documents, access.copies)
    split = (
        sound.results
        | "assign splits" >> AssignSplits(config.splits)
        | "splits" >> DropLeaks(config.splits, config.dedupe.radius, unique.duplicates)
    )
    featured = split.documents | "features" >> ExtractFeatures(plan.features, access.copies, config.documents, progress)
    drop_copies = DropDuplicates(copies, config.copy_detection.policy, Stage.COPY_DETECTION)
    single = featured.documents | "copy detection" >> drop_copies
    shards = single.documents | "shards" >> WriteShards(config.shards, writer, progress, version)
    failed = (unique, ruled, sound, split, featured, single)
    failures = (read, *(stage.failures for stage in failed)) | "failures" >> beam.Flatten()
    return SimpleNamespace(
        sources=sources, images=images, settled=settled, digest=digest, version=version, unique=unique, ruled=ruled,
        sound=sound, split=split, featured=featured, single=single, shards=shards, failures=failures,
    )  # fmt: skip


def _tables(stages: SimpleNamespace, plan: BuildPlan) -> beam.PCollection[FileEntry]:
    """Write the tables of a version, and what stands beside it; return the entries of the version's."""
    rows = {
        "failures": stages.failures | "lasting" >> beam.Map(attrgetter("lasting")),
        UNREACHED: stages.failures | "transient" >> beam.Filter(_is_transient),
        "duplicates": stages.unique.duplicates,
        "near-copies": stages.single.duplicates,
        "leaks": stages.split.leaks,
    }
    folders = {**dict.fromkeys(rows, plan.folder), UNREACHED: partial(plan.lake.retrievals, plan.config.dataset)}
    written = rows | "tables" >> WriteTables(folders, _SCHEMAS, stages.version)
    return written | "of the version" >> beam.FlatMapTuple(_of_version)


def _is_transient(failure: Failure) -> bool:
    return failure.reason in TRANSIENT


def _of_version(table: str, entry: FileEntry) -> list[FileEntry]:
    return [] if table == UNREACHED else [entry]


def _passed(stages: SimpleNamespace, config: BuildConfig) -> dict[Stage, beam.PCollection]:
    """Return what each stage that is on passed on."""
    passed = {
        Stage.SOURCES: stages.sources.results,
        Stage.DOCUMENTS: stages.settled.results,
        Stage.DEDUPE: stages.unique.documents,
        Stage.SHARDS: stages.single.documents,
    }
    if config.quality.is_on:
        passed[Stage.QUALITY] = stages.sound.results
    if config.copy_detection.extractor:
        passed[Stage.COPY_DETECTION] = stages.single.documents
    if config.documents.is_judged_after_dedupe:
        passed[Stage.RULES] = stages.ruled.results
    return passed


def _facts(root: beam.Pipeline, stages: SimpleNamespace, files: beam.PCollection, plan: BuildPlan) -> beam.PCollection:
    """Return the facts that the manifest is composed of."""
    passed, split, featured = _passed(stages, plan.config), stages.split, stages.featured
    images = {Stage.IMAGES: stages.images, Stage.FEATURES: (featured.images,)}
    things = (
        *(stages.failures | "outcomes" >> ListOutcomes(passed, images)),
        (split.leaks, split.heeded) | "leaks" >> ListLeaks(),
        *((featured.documents, featured.images) | "rights" >> ListRights()),
        stages.shards.sizes,
    ) | "things" >> beam.Flatten()
    counted, rights = things | "counts" >> CountThings() | "rights apart" >> beam.Partition(_is_of_rights, 2)
    return (
        counted,
        rights | "stated" >> beam.Values() | "commonest rights" >> KeepCommonest() | "few" >> as_facts("rights"),
        root | "stages" >> beam.Create([("passed", (str(stage), 0)) for stage in passed | images], reshuffle=False),
        stages.failures | "explain" >> ExplainFailures() | "explained" >> as_facts("explained"),
        stages.unique.counts | "near duplicates" >> as_facts("near_duplicates"),
        stages.single.counts | "near copies" >> as_facts("near_copies"),
        files | "files" >> as_facts("files"),
        stages.shards.summaries | "summaries" >> as_facts("shards"),
        stages.shards.unique_images | "unique images" >> as_facts("unique_images"),
        stages.digest | "digest" >> as_facts("digest"),
    ) | "facts" >> beam.Flatten()


def _is_of_rights(fact: tuple[str, Any], _: int) -> int:
    return int(fact[0] == "rights")


def _version(digest: Any, identity: dict[str, Any], plan: BuildPlan) -> str:
    """Return the name of the version that is being built.

    Raises:
        BuildError: this worker would build another one from the same: its code or its libraries are not those of the
            process that began the build.
    """
    if (own := plan.identity) != identity:
        inputs = {name for name, value in identity["inputs"].items() if own["inputs"].get(name) != value}
        differ = ", ".join(sorted(inputs)) or "its settings and schemas"
        raise BuildError(f"a worker differs from where the build was started: {differ}; install the same everywhere")
    return version_of_build(identity, digest)


def _write_result(facts: dict[str, list[Any]], plan: BuildPlan) -> None:
    copies = plan.access.copies.folder.uri.partition("?")[0].rpartition("/")[2]
    manifest = compose_manifest(plan.identity, plan.features, facts, copies=copies)
    plan.lake.builds.write(plan.draft, manifest.to_json().encode())
