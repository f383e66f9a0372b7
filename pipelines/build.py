"""The pipeline of a build: one statement a stage, in the order of the data.

    sources -> documents -> images -> dedupe -> splits -> features -> copy detection -> shards -> manifest (a draft)

Everything up to settled documents touches the outside world, through the answers kept in `raw/`. What follows is a
function of those documents and the configuration. The fingerprint of both names the version, and is known inside the
pipeline before a shard is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any

import apache_beam as beam

from pipelines.copy_detection.transforms import by_vector
from pipelines.dedupe.transforms import DropDuplicates, by_hash
from pipelines.documents.transforms import FilterCandidates, FilterQuality, JudgeDocuments, SettleDocuments
from pipelines.features.extraction import FeaturePlan
from pipelines.features.transforms import ExtractFeatures
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import ImageAccess
from pipelines.images.transforms import LeaveOutPlaceholders, ObtainImages
from pipelines.recipe import BuildConfig
from pipelines.shards.transforms import DigestInputs, WriteShards, WriteTables
from pipelines.shards.writing import ShardWriter, build_identity, compose_manifest, version_of_build
from pipelines.sources.source import Context
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.transforms import ReadSource
from pipelines.splits.transforms import AssignSplits, DropLeaks
from pipelines.transforms import (
    CountThings,
    GatherFacts,
    Progress,
    StageOutput,
    as_facts,
    count_lost,
    count_passed,
    show,
)
from schemas.configs import naming
from schemas.failures import TRANSIENT, Failure, Stage
from schemas.lake import DRAFTS, MANIFEST, Folder, Lake
from schemas.messages import BuildError
from schemas.raw import UNREACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build with everything that was decided before it starts.

    Attributes:
        features: which there are, and what computes them.
        files: folder or archive that names of image files are looked up in.
        takedowns: what must not be in the data set.
        name: of the build: of its ledger, and of the draft of its manifest in `builds/`.
        shares: parts that hosts are divided into.
        begin: passes on what the first step begins with, and leaves a sign of it; None: no sign is asked for.
    """

    config: BuildConfig
    lake: Lake
    features: FeaturePlan
    progress: Progress
    files: str
    takedowns: Takedowns
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
        return self.beside if _was_there(folder, self.name) else folder

    @property
    def beside(self) -> Folder:
        """Return the folder of a version that is built again."""
        return self.lake.dataset(self.config.dataset, self.name)

    @property
    def ledger(self) -> Folder:
        return self.lake.ledger(self.config.dataset, self.name)

    @property
    def context(self) -> Context:
        config = self.config
        return Context(
            http=config.http,
            raw=self.lake.raw,
            ledger=self.ledger,
            takedowns=self.takedowns,
            min_images=config.documents.min_images,
        )

    @property
    def writer(self) -> ShardWriter:
        return ShardWriter(
            lake=self.lake,
            dataset=self.config.dataset,
            folder=self.folder,
            copies=self.access.copies,
            features=self.features,
        )

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
            takedowns=self.takedowns,
            ledger=self.ledger,
        )


@lru_cache(16)
def _was_there(folder: Folder, build: str) -> bool:
    """Return whether a version was there when a process first wrote something of it in a build: one look a process."""
    return folder.exists(MANIFEST)


def identity_of(config: BuildConfig, features: FeaturePlan) -> dict[str, Any]:
    """Return all that decides what a build makes of what it reads, the code that makes its bytes included."""
    modules = (__name__, type(config.source).__module__, *features.modules)
    return build_identity(naming(config), features.fingerprints, modules)


def chain_stages(root: beam.Pipeline, plan: BuildPlan) -> None:
    """Add every stage of a build to a pipeline, its tables, and what its manifest is made of."""
    config, access, copies = plan.config, plan.access, plan.access.copies
    rules, first = config.documents, config.documents.before_dedupe
    alike, near = by_hash(config.dedupe.radius), by_vector(config.copy_detection, plan.features)

    sources = root | "sources" >> ReadSource(config.source, plan.context, plan.begin)
    candidates = sources.results | "documents" >> FilterCandidates(first)
    found = candidates.results | "images" >> ObtainImages(access, plan.shares)
    images = found | "placeholders" >> LeaveOutPlaceholders(config.images)
    documents = candidates.results | "settle" >> SettleDocuments(first, images)
    read = chain(sources.failures, candidates.failures, documents.failures)
    digest = (documents.results, tuple(read) | "failures of reading" >> beam.Flatten()) | "inputs" >> DigestInputs()
    version = digest | "version" >> beam.Map(_version, identity=plan.identity, plan=plan)

    unique = documents.results | "dedupe" >> DropDuplicates(alike, config.dedupe.policy)
    judged = unique.results | "rules" >> JudgeDocuments(rules)
    sound = judged.results | "quality" >> FilterQuality(config.quality, rules, copies)
    assigned = sound.results | "assign splits" >> AssignSplits(config.splits)
    split = assigned | "splits" >> DropLeaks(config.splits, unique.tables["duplicates"])
    featured = split.results | "features" >> ExtractFeatures(plan.features, copies, rules)
    single = featured.results | "copy detection" >> DropDuplicates(near, config.copy_detection.policy)
    shards = single.results | "shards" >> WriteShards(config.shards, plan.writer, version)

    stages = (sources, candidates, documents, unique, judged, sound, split, featured, single, shards)
    passed = {name: some for stage in stages for name, some in stage.passed.items()}
    show(passed | {Stage.IMAGES: found}, plan.progress)
    facts: dict[str, beam.PCollection] = {"digest": digest}
    for stage in stages:
        facts |= stage.facts
    lost = tuple(chain.from_iterable(stage.failures for stage in stages)) | "failures" >> beam.Flatten()
    tables = _tables(stages, lost)
    folders = {**dict.fromkeys(tables, plan.folder), UNREACHED: partial(plan.lake.retrievals, config.dataset)}
    facts["files"] = tables | "tables" >> WriteTables(folders, version)
    counts = (*count_passed(passed), count_lost(lost), *chain.from_iterable(stage.counts for stage in stages))
    things = counts | "counts" >> beam.Flatten() | "things" >> CountThings()
    every = (things, *(some | f"fact {kind}" >> as_facts(kind) for kind, some in facts.items()))
    gathered = every | "facts" >> beam.Flatten() | "gather" >> GatherFacts()
    _ = gathered | "manifest" >> beam.Map(_write_result, plan=plan, stages=[*passed])


def _tables(stages: Iterable[StageOutput], lost: beam.PCollection) -> dict[str, beam.PCollection]:
    """Return the rows of every table of a version, by its name, and those of what failed for the moment."""
    tables: dict[str, beam.PCollection] = {}
    for stage in stages:
        tables |= stage.tables
    tables["failures"] = lost | "lasting" >> beam.Map(attrgetter("lasting"))
    tables[UNREACHED] = lost | "transient" >> beam.Filter(_is_transient)
    return tables


def _is_transient(failure: Failure) -> bool:
    return failure.reason in TRANSIENT


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


def _write_result(facts: dict[str, list[Any]], plan: BuildPlan, stages: list[str]) -> None:
    copies = plan.access.copies.folder.uri.partition("?")[0].rpartition("/")[2]
    manifest = compose_manifest(plan.identity, plan.features, stages, facts, copies=copies)
    plan.lake.builds.write(plan.draft, manifest.to_json().encode())
