"""The pipeline of a build: one statement a stage, in the order of the data.

    sources -> documents -> images -> dedupe -> splits -> features -> shards -> manifest (a draft of it)

Everything up to settled documents touches the outside world, through the answers kept in `raw/`. What follows is a
function of those documents and the configuration. The fingerprint of both names the version, and is known inside the
pipeline before a shard is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam

from pipelines.config import BuildConfig, content_config
from pipelines.counts import CountStages, GatherFacts, as_facts
from pipelines.dedupe.transforms import FindDuplicates
from pipelines.documents.settle import SettledDocument, without_images
from pipelines.documents.transforms import FilterCandidates, LeaveOut, MeetParts, SettleDocuments
from pipelines.features.plan import FeaturePlan
from pipelines.features.transforms import ExtractImages, ExtractSentences
from pipelines.images.obtain import ImageAccess
from pipelines.images.packed import PackedImage, copy_packs
from pipelines.images.transforms import ObtainImages
from pipelines.progress import Progress
from pipelines.settings import OnLeak, SplitsConfig
from pipelines.shards.manifest import add_digests, build_identity, compose_manifest, content_digest, version_of_build
from pipelines.shards.transforms import ExplainFailures, WriteShards, WriteTable
from pipelines.sources.credentials import Credentials
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.transforms import ReadSource
from pipelines.splits.leaks import is_heeded, is_weaker_end
from pipelines.splits.transforms import AssignSplits, CountLeaks, FindLeaks
from pipelines.transforms import Fallible
from pipelines.web.downloads import CapturedFile
from schemas.documents import Document
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Lake
from schemas.leaks import LEAK_SCHEMA, Leak
from schemas.retrievals import RETRIEVAL_SCHEMA, Retrieval, Retrieved, retrieval_row
from schemas.tables import row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build with everything that was decided before it starts.

    Attributes:
        features: which there are, and what computes them.
        captured: files of the source that were fetched for it.
        files: folder or archive that names of image files are looked up in.
        given: path of the feature array the source brings, or None.
        result: name of the file in `builds/` that the manifest's draft is written to.
        workers: parts that hosts are divided into.
    """

    config: BuildConfig
    lake: Lake
    credentials: Credentials
    features: FeaturePlan
    progress: Progress
    captured: tuple[CapturedFile, ...]
    files: str
    given: str | None
    result: str
    workers: int = 1

    @property
    def identity(self) -> dict[str, Any]:
        """Return all that decides what the build makes of what it reads."""
        return build_identity(content_config(self.config), self.features.fingerprints)

    @property
    def access(self) -> ImageAccess:
        config = self.config
        return ImageAccess(
            http=config.http,
            raw=self.lake.raw,
            copies=copy_packs(self.lake, config.images, config.dedupe.fingerprint),
            files=self.files,
            features=self.given,
            config=config.images,
            fingerprint=config.dedupe.fingerprint,
            takedowns=Takedowns(config.takedowns),
        )


def chain_stages(root: beam.Pipeline, plan: BuildPlan) -> None:
    """Add every stage of a build to a pipeline."""
    config, progress, takedowns = plan.config, plan.progress, Takedowns(plan.config.takedowns)
    sources = root | "sources" >> ReadSource(
        config.source, config.http, plan.lake.raw, plan.credentials, takedowns, config.documents.min_images, progress
    )
    candidates = sources.results | "documents" >> FilterCandidates(config.documents, takedowns)
    images = candidates.results | "images" >> ObtainImages(plan.access, progress, plan.workers)
    settled = candidates.results | "settle" >> SettleDocuments(config.documents, images)
    read = (sources.failures, candidates.failures, settled.failures) | "failures of reading" >> beam.Flatten()
    digest = digest_inputs(settled.results, read)
    version = digest | "version" >> beam.Map(partial(version_of_build, plan.identity))

    unique = settled.results | "dedupe" >> DropDuplicates(plan)
    known = unique.kept | "images of documents" >> UniqueImages()
    assigned = unique.kept | "splits" >> AssignSplits(config.splits)
    leaks = assigned | "find leaks" >> FindLeaks(config.dedupe.radius, unique.duplicates)
    split, leak_failures = drop_leaks(assigned, leaks, config.splits)
    outcomes = known | "image features" >> ExtractImages(plan.features, plan.access.copies, progress)
    met = split | "with features" >> MeetParts(_document_id, _hashes, outcomes)
    featured = met | "drop rejected" >> Fallible(Stage.FEATURES, partial(_drop_rejected, config=config))
    complete = featured.results | "sentence features" >> ExtractSentences(plan.features, progress)
    shards = complete.results | "shards" >> WriteShards(
        config.shards,
        plan.lake,
        config.dataset,
        plan.access.copies,
        plan.features,
        progress,
        version,
    )
    failures = (
        read,
        unique.failures,
        leak_failures,
        featured.failures,
        complete.failures,
    ) | "all failures" >> beam.Flatten()
    write = partial(WriteTable, partial(plan.lake.dataset, config.dataset), version=version)
    tables = (
        failures | "failures" >> write("failures", FAILURE_SCHEMA, row_of),
        unique.duplicates | "duplicates" >> write("duplicates", DUPLICATE_SCHEMA, row_of),
        leaks | "leaks" >> write("leaks", LEAK_SCHEMA, row_of),
    ) | "tables" >> beam.Flatten()
    of_inputs = root | "inputs" >> beam.Create([retrieval_of(file) for file in plan.captured])
    of_documents = unique.kept | "retrieved" >> beam.FlatMap(_retrievals) | "retrieved once" >> beam.Distinct()
    retrievals = (of_inputs, of_documents) | "retrievals" >> beam.Flatten()
    _ = retrievals | "write retrievals" >> WriteTable(
        partial(plan.lake.retrievals, config.dataset), "", RETRIEVAL_SCHEMA, retrieval_row, version
    )
    passed = {
        Stage.SOURCES: sources.results,
        Stage.DOCUMENTS: settled.results,
        Stage.IMAGES: images | "images only" >> beam.Filter(_is_image),
        Stage.DEDUPE: unique.kept,
        Stage.FEATURES: outcomes | "featured only" >> beam.Filter(_is_image),
        Stage.SHARDS: complete.results,
    }
    lost = {Stage.IMAGES: images | "not images" >> beam.FlatMap(_failure)}
    counts = failures | "counts" >> CountStages(passed, lost)
    facts = (
        counts,
        tables | "files of tables" >> as_facts("files"),
        shards.summaries | "shards of facts" >> as_facts("shards"),
        shards.unique_images | "images of facts" >> as_facts("unique_images"),
        failures | "explain" >> ExplainFailures() | "reasons of facts" >> as_facts("explained"),
        digest | "digest of facts" >> as_facts("digest"),
        leaks | "count leaks" >> CountLeaks() | "leaks of facts" >> as_facts("leaks"),
        leaks
        | "heeded" >> beam.Filter(is_heeded, config.splits)
        | "count heeded" >> CountLeaks()
        | "heeded of facts" >> as_facts("heeded_leaks"),
    ) | "facts" >> beam.Flatten()
    _ = facts | "gather facts" >> GatherFacts() | "manifest" >> beam.Map(_write_result, plan=plan)


class Unique(NamedTuple):
    """What near-duplicate search left, found and dropped."""

    kept: beam.PCollection
    duplicates: beam.PCollection
    failures: beam.PCollection


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Settled documents to those that stay, every duplicate occurrence, and the failures of those that go."""

    plan: BuildPlan

    def expand(self, documents: beam.PCollection) -> Unique:
        config = self.plan.config.dedupe
        found = documents | "find" >> FindDuplicates(radius=config.radius, policy=config.policy)
        kept = (documents, found.dropped) | "keep" >> LeaveOut()
        return Unique(kept, found.duplicates, found.dropped | "failures" >> beam.Map(_duplicate_failure))


class UniqueImages(beam.PTransform):
    """Settled documents to (content hash, PackedImage), once each: of the smallest address, with a stated licence."""

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        return documents | "shown" >> beam.FlatMap(_shown) | "one of each" >> beam.CombinePerKey(_first_image)


def digest_inputs(documents: beam.PCollection, failures: beam.PCollection) -> beam.PCollection:
    """Return the digest of the multiset of everything that was read: whatever the order, the same number."""
    read = (documents | "only what was read" >> beam.Map(_document), failures) | "all that was read" >> beam.Flatten()
    return read | "digests" >> beam.Map(content_digest) | "add digests" >> beam.CombineGlobally(add_digests)


def drop_leaks(
    documents: beam.PCollection, leaks: beam.PCollection, config: SplitsConfig
) -> tuple[beam.PCollection, beam.PCollection]:
    """Return the documents that stay, and a failure row for each that goes (none unless `on_leak` is `drop`)."""
    wanted = leaks | "to drop" >> beam.Filter(partial(_is_to_drop, config))
    weaker = wanted | "weaker ends" >> beam.Map(_document_of) | "weaker once" >> beam.Distinct()
    stays = (documents, weaker) | "keep unleaked" >> LeaveOut() | "to documents" >> beam.Map(_document)
    return stays, weaker | "leak failures" >> beam.Map(_leak_failure)


def _document(settled: SettledDocument) -> Document:
    return settled.document


def _document_id(document: Document) -> str:
    return document.id


def _hashes(document: Document) -> list[str]:
    return sorted({image.hash for image in document.images})


def _shown(settled: SettledDocument) -> Iterator[tuple[str, PackedImage]]:
    for found, ref in zip(settled.images, settled.document.images, strict=True):
        yield found.image.hash, replace(found, image=replace(found.image, licence=ref.licence))


def _first_image(images: Iterable[PackedImage]) -> PackedImage:
    shown = list(images)
    licence = min((each.image.licence for each in shown if each.image.licence), default=None)
    first = min(shown, key=_address)
    return replace(first, image=replace(first.image, licence=licence))


def _address(packed: PackedImage) -> str:
    return packed.image.source or ""


def _drop_rejected(met: Any, config: BuildConfig) -> Iterator[SettledDocument | Failure]:
    _, documents, outcomes = met
    rejected = {key: found for key, found in outcomes.items() if isinstance(found, Failure)}
    for document in documents:
        settled = SettledDocument(document, tuple(outcomes[image.hash] for image in document.images))
        yield from without_images(settled, rejected, config.documents, stage=Stage.SHARDS)


def _is_to_drop(config: SplitsConfig, leak: Leak) -> bool:
    return config.on_leak is OnLeak.DROP and is_heeded(leak, config) and is_weaker_end(leak)


def _document_of(leak: Leak) -> str:
    return leak.document


def _leak_failure(document_id: str) -> Failure:
    message = "shares an image or a text with a document of another split; see the leaks table"
    return Failure(Stage.SHARDS, document_id, Reason.LEAKED, message)


def _duplicate_failure(document_id: str) -> Failure:
    message = "an image of it has a near-duplicate in the data set; see the duplicates table"
    return Failure(Stage.DEDUPE, document_id, Reason.DUPLICATE_IMAGE, message)


def retrieval_of(file: CapturedFile) -> Retrieval:
    """Return when a file of the source was fetched."""
    return Retrieval(Retrieved.INPUT, file.url, file.url, file.fetched_at)


def _retrievals(settled: SettledDocument) -> Iterator[Retrieval]:
    """Yield when the page of a document, and its images, were fetched, as far as they were."""
    provenance = settled.document.provenance
    if provenance.retrieved is not None:
        yield Retrieval(Retrieved.DOCUMENT, settled.document.id, provenance.url, provenance.retrieved)
    for found in settled.images:
        if found.retrieved is not None:
            yield Retrieval(Retrieved.IMAGE, found.image.hash, found.image.source, found.retrieved)


def _is_image(outcome: tuple[str, Any]) -> bool:
    return not isinstance(outcome[1], Failure)


def _failure(outcome: tuple[str, Any]) -> Iterator[Failure]:
    if isinstance(outcome[1], Failure):
        yield outcome[1]


def _write_result(facts: dict[str, list[Any]], plan: BuildPlan) -> None:
    manifest = compose_manifest(plan.identity, plan.features, facts)
    plan.lake.builds.write(plan.result, manifest.to_json().encode())
