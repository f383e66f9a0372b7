"""The one page that chains the stages into a pipeline.

    sources -> documents -> images -> dedupe -> features -> shards -> manifest (a draft of it)

Everything up to the documents touches the outside world, through captures in `raw/`; what follows is a function of
those documents and the configuration. The fingerprint of both is the version, known inside the pipeline before a
shard is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam

from pipelines.config import BuildConfig, MultiRetrievalSource
from pipelines.dedupe.occurrences import Occurrence
from pipelines.dedupe.transforms import FindDuplicates
from pipelines.documents.transforms import DropRejected, FilterCandidates, LeaveOut, ResolveImages
from pipelines.features.plan import FeaturePlan
from pipelines.features.transforms import ExtractImages, ExtractSentences
from pipelines.images.obtain import ImagePlaces
from pipelines.images.store import ImageStore, stored_copies
from pipelines.images.transforms import ObtainImages, UniqueImages
from pipelines.progress import Progress
from pipelines.settings import OnLeak, SplitsConfig
from pipelines.shards.manifests import BuildFacts, SizeKey, StageCount, compose_manifest, version_name
from pipelines.shards.transforms import AssignSplits, CountLeaks, FindLeaks, WriteRows, WriteShards
from pipelines.shards.writing import ShardSummary
from pipelines.sources.credentials import Credentials
from pipelines.sources.readers import image_root
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.transforms import ListRetrievals, ReadSource, WriteRetrievals
from pipelines.splits.leaks import is_heeded, is_weaker_end
from pipelines.web.downloads import CapturedFile
from schemas.documents import Document
from schemas.duplicates import DUPLICATE_SCHEMA, Duplicate, duplicate_row
from schemas.failures import FAILURE_SCHEMA, FILTERED, Failure, Reason, Stage, failure_row
from schemas.images import Image
from schemas.lake import Lake
from schemas.leaks import LEAK_SCHEMA, Leak, leak_row
from schemas.manifest import FileEntry
from schemas.retrievals import RETRIEVAL_SCHEMA, retrieval_row

_MODULUS = 1 << 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build with everything that was decided before it starts.

    Attributes:
        features: which there are, and what computes them.
        captured: files of the source that were fetched for it.
        result: name of the file in `stages/` that the manifest's draft is written to.
        neighbours: worker processes that share a machine, and so a host's pace; 1 where they may not.
    """

    config: BuildConfig
    lake: Lake
    credentials: Credentials
    features: FeaturePlan
    progress: Progress
    captured: tuple[CapturedFile, ...]
    result: str
    neighbours: int = 1

    @property
    def store(self) -> ImageStore:
        return ImageStore(stored_copies(self.lake, self.config.images.jpeg_quality))

    @property
    def places(self) -> ImagePlaces:
        source = self.config.source
        return ImagePlaces(
            http=self.config.http,
            raw=self.lake.raw,
            store=self.store,
            files=image_root(source),
            features=given_features(source),
        )


def given_features(source: Any) -> str | None:
    """Return the path of the feature array a source brings, or None."""
    return source.features if isinstance(source, MultiRetrievalSource) else None


def chain_stages(root: beam.Pipeline, plan: BuildPlan) -> None:
    """Add every stage of a build to a pipeline."""
    config = plan.config
    read = read_documents(root, plan)
    digest = digest_inputs(read.documents, read.failures)
    version = digest | "version" >> beam.Map(partial(version_name, config, dict(plan.features.fingerprints)))
    unique = drop_duplicates(plan, read)

    assigned = unique.kept | "splits" >> AssignSplits(config.splits)
    leaks = assigned | "find leaks" >> FindLeaks(config.dedupe.radius, read.images, unique.duplicates)
    split, leak_failures = drop_leaks(assigned, leaks, config.splits)
    outcomes = needed_images(split, read.images) | "image features" >> ExtractImages(
        plan.features, plan.store, plan.progress
    )
    featured = split | "with features" >> DropRejected(config.documents, outcomes)
    complete = featured.documents | "sentence features" >> ExtractSentences(plan.features, plan.progress)
    images = outcomes | "images with features" >> beam.Filter(_is_image)
    shards = complete | "shards" >> WriteShards(
        config.shards, plan.lake, config.dataset, plan.store, plan.features, plan.progress, images, version
    )
    late = (leak_failures, featured.failures) | "late failures" >> beam.Flatten()
    failures = (read.failures, unique.failures, late) | "all failures" >> beam.Flatten()
    write = partial(WriteRows, lake=plan.lake, dataset=config.dataset, version=version)
    tables = (
        failures | "failures" >> write("failures", FAILURE_SCHEMA, failure_row),
        unique.duplicates | "duplicates" >> write("duplicates", DUPLICATE_SCHEMA, duplicate_row),
        leaks | "leaks" >> write("leaks", LEAK_SCHEMA, leak_row),
    ) | "tables" >> beam.Flatten()
    retrievals = split | "retrievals" >> ListRetrievals(images, plan.captured, plan.lake.raw)
    _ = retrievals | "write retrievals" >> WriteRetrievals(
        "", RETRIEVAL_SCHEMA, retrieval_row, plan.lake, config.dataset, version
    )
    counts = (
        read.counts,
        count_stage(Stage.DEDUPE, unique.kept, unique.failures),
        count_stage(Stage.FEATURES, images, outcomes | "image failures" >> beam.FlatMap(_failure_of)),
        count_stage(Stage.SHARDS, complete, late | "of documents lost" >> _only(Stage.SHARDS)),
    ) | "stage counts" >> beam.Flatten()
    facts = {
        "version": beam.pvalue.AsSingleton(version),
        "digest": beam.pvalue.AsSingleton(digest),
        "files": beam.pvalue.AsList(
            (tables, shards | "shard files" >> beam.FlatMap(_files)) | "files" >> beam.Flatten()
        ),
        "sizes": beam.pvalue.AsDict(shards | "sizes" >> beam.FlatMap(_sizes) | "count sizes" >> _per_element()),
        "unique_images": beam.pvalue.AsDict(count_images(shards)),
        "reasons": beam.pvalue.AsDict(count_reasons(failures)),
        "stages": beam.pvalue.AsList(counts),
        "leaks": beam.pvalue.AsList(leaks | "count leaks" >> CountLeaks()),
        "heeded_leaks": beam.pvalue.AsList(
            leaks | "heeded" >> beam.Filter(is_heeded, config.splits) | "count heeded" >> CountLeaks()
        ),
    }
    _ = root | "manifest" >> beam.Create([None]) | "compose" >> beam.Map(_write_result, plan=plan, **facts)


class Reading(NamedTuple):
    """What came of sources, documents and images."""

    documents: beam.PCollection
    images: beam.PCollection
    failures: beam.PCollection
    counts: beam.PCollection


def read_documents(root: beam.Pipeline, plan: BuildPlan) -> Reading:
    """Add the stages that touch the outside world: records, their drafts, the images, and documents of them."""
    config = plan.config
    takedowns = Takedowns(config.takedowns)
    sources = root | "sources" >> ReadSource(
        config.source, config.http, plan.lake.raw, plan.credentials, takedowns, plan.progress
    )
    drafts = sources.results | "documents" >> FilterCandidates(config.documents, takedowns)
    outcomes = drafts.results | "images" >> ObtainImages(
        plan.places, config.images, config.dedupe.fingerprint, takedowns, plan.progress, plan.neighbours
    )
    resolved = drafts.results | "documents with images" >> ResolveImages(config.documents, outcomes)
    images = outcomes | "unique images" >> UniqueImages()
    of_documents = (drafts.failures, resolved.failures) | "document failures" >> beam.Flatten()
    failures = (sources.failures, of_documents) | "failures so far" >> beam.Flatten()
    counts = (
        count_stage(Stage.SOURCES, sources.results, sources.failures | "of sources" >> _only(Stage.SOURCES)),
        count_stage(Stage.DOCUMENTS, resolved.documents, of_documents | "of documents" >> _only(Stage.DOCUMENTS)),
        count_stage(Stage.IMAGES, outcomes | beam.Filter(_is_image), outcomes | beam.FlatMap(_failure_of)),
    ) | "counts so far" >> beam.Flatten()
    return Reading(resolved.documents, images, failures, counts)


class Unique(NamedTuple):
    """What near-duplicate search left, found and dropped."""

    kept: beam.PCollection
    duplicates: beam.PCollection
    failures: beam.PCollection


def drop_duplicates(plan: BuildPlan, read: Reading) -> Unique:
    """Add the dedupe stage: every duplicate occurrence, and the documents that stay."""
    duplicates = find_duplicates(plan, read.documents, read.images)
    dropped = duplicates | "dropped" >> beam.FlatMap(_dropped) | "dropped once" >> beam.Distinct()
    kept = (read.documents, dropped) | "keep" >> LeaveOut()
    return Unique(kept, duplicates, dropped | "duplicate failures" >> beam.Map(_duplicate_failure))


def digest_inputs(documents: beam.PCollection, failures: beam.PCollection) -> beam.PCollection:
    """Return the digest of the multiset of everything that was read: whatever the order, the same number."""
    digests = (documents | "digest documents" >> beam.Map(_digest), failures | "digest failures" >> beam.Map(_digest))
    return digests | "digests" >> beam.Flatten() | "add digests" >> beam.CombineGlobally(_add_digests)


def find_duplicates(plan: BuildPlan, documents: beam.PCollection, images: beam.PCollection) -> beam.PCollection:
    """Return every duplicate image occurrence of the data set."""
    places = documents | "image places" >> beam.FlatMap(_image_places)
    occurrences = (
        (places, images) | "meet fingerprints" >> beam.CoGroupByKey() | "occurrences" >> beam.FlatMap(_occurrences)
    )
    return occurrences | "dedupe" >> FindDuplicates(radius=plan.config.dedupe.radius, policy=plan.config.dedupe.policy)


def drop_leaks(
    documents: beam.PCollection, leaks: beam.PCollection, config: SplitsConfig
) -> tuple[beam.PCollection, beam.PCollection]:
    """Return the documents that stay, and a failure row for each that goes (none unless `on_leak` is `drop`)."""
    wanted = leaks | "to drop" >> beam.Filter(partial(_is_to_drop, config))
    weaker = wanted | "weaker ends" >> beam.Map(_document_of) | "weaker once" >> beam.Distinct()
    stays = (documents, weaker) | "keep unleaked" >> LeaveOut()
    return stays, weaker | "leak failures" >> beam.Map(_leak_failure)


def _is_to_drop(config: SplitsConfig, leak: Leak) -> bool:
    return config.on_leak is OnLeak.DROP and is_heeded(leak, config) and is_weaker_end(leak)


def _document_of(leak: Leak) -> str:
    return leak.document


def _leak_failure(document_id: str) -> Failure:
    message = "shares an image or a text with a document of another split; see the leaks table"
    return Failure(Stage.SHARDS, document_id, Reason.LEAKED, message)


def needed_images(documents: beam.PCollection, images: beam.PCollection) -> beam.PCollection:
    """Return (content hash, Image) of the images that kept documents refer to, once each."""
    wanted = documents | "refs" >> beam.FlatMap(_licensed_refs) | "refs once" >> beam.Distinct()
    return (wanted, images) | "meet kept" >> beam.CoGroupByKey() | "only needed" >> beam.FlatMap(_needed)


def count_stage(stage: Stage, passed: beam.PCollection, failures: beam.PCollection | None) -> beam.PCollection:
    """Return `StageCount`s of what a stage passed on, rejected by a rule of the data set, and failed to handle."""
    title = f"count {stage}"
    counts = passed | f"{title} out" >> beam.combiners.Count.Globally() | f"{title} as out" >> _out_count(stage)
    if failures is None:
        return counts
    kinds = failures | f"{title} kinds" >> beam.Map(_failure_field) | f"{title} failures" >> _per_element()
    return (counts, kinds | f"{title} as failures" >> _failure_count(stage)) | title >> beam.Flatten()


def count_images(shards: beam.PCollection) -> beam.PCollection:
    """Return (split, number) of the different images of each split; two shards may show the same one."""
    once = shards | "shown images" >> beam.FlatMap(_shown_images) | "shown once" >> beam.Distinct()
    return once | "splits of images" >> beam.Keys() | "count images of splits" >> _per_element()


def count_reasons(failures: beam.PCollection) -> beam.PCollection:
    """Return (reason, number) of every failure reason that occurs."""
    return failures | "reasons" >> beam.Map(_reason_of) | "count reasons" >> beam.combiners.Count.PerElement()


def _out_count(stage: Stage) -> beam.PTransform:
    return beam.Map(partial(StageCount, str(stage), "out"))


def _failure_count(stage: Stage) -> beam.PTransform:
    return beam.MapTuple(partial(StageCount, str(stage)))


def _per_element() -> beam.PTransform:
    return beam.combiners.Count.PerElement()


def _failure_field(failure: Failure) -> str:
    return "rejected" if failure.reason in FILTERED else "failed"


def _only(stage: Stage) -> beam.PTransform:
    return beam.Filter(partial(_is_of, stage))


def _is_of(stage: Stage, failure: Failure) -> bool:
    return failure.stage == stage


def _reason_of(failure: Failure) -> str:
    return str(failure.reason)


def _key_by_self() -> beam.PTransform:
    return beam.Map(_pair)


def _pair(item: str) -> tuple[str, None]:
    return item, None


def _digest(item: Document | Failure) -> int:
    return int.from_bytes(hashlib.sha256(repr(item).encode()).digest(), "big")


def _add_digests(digests: Iterable[int]) -> int:
    return sum(digests) % _MODULUS


def _image_places(document: Document) -> Iterable[tuple[str, tuple[str, int]]]:
    for position, image in enumerate(document.images):
        yield image.hash, (document.id, position)


def _occurrences(group: tuple[str, tuple[Iterable[tuple[str, int]], Iterable[Image]]]) -> Iterable[Occurrence]:
    _, (places, images) = group
    for image in images:
        for document, position in places:
            yield Occurrence(document, position, image.hash, image.fingerprint, image.is_flat)


def _dropped(duplicate: Duplicate) -> Iterable[str]:
    if duplicate.is_dropped:
        yield duplicate.document


def _duplicate_failure(document_id: str) -> Failure:
    message = "an image of it has a near-duplicate in the data set; see the duplicates table"
    return Failure(Stage.DEDUPE, document_id, Reason.DUPLICATE_IMAGE, message)


def _licensed_refs(document: Document) -> Iterable[tuple[str, str | None]]:
    for image in document.images:
        yield image.hash, image.licence


def _needed(group: tuple[str, tuple[Iterable[str | None], Iterable[Image]]]) -> Iterable[tuple[str, Image]]:
    """Yield an image that a document refers to, under the first of the licences stated for it."""
    content_hash, (licences, images) = group
    if wanted := list(licences):
        stated = min((licence for licence in wanted if licence), default=None)
        for image in images:
            yield content_hash, replace(image, licence=image.licence or stated)


def _is_image(outcome: tuple[str, Image | Failure]) -> bool:
    return isinstance(outcome[1], Image)


def _failure_of(outcome: tuple[str, Image | Failure]) -> Iterable[Failure]:
    if isinstance(outcome[1], Failure):
        yield outcome[1]


def _files(shard: ShardSummary) -> Iterable[FileEntry]:
    return shard.entries


def _sizes(shard: ShardSummary) -> Iterable[SizeKey]:
    for size in shard.sizes:
        yield str(shard.split), size.sentences, size.images, size.links


def _shown_images(shard: ShardSummary) -> Iterable[tuple[str, str]]:
    for content_hash in shard.image_hashes:
        yield str(shard.split), content_hash


def _write_result(_: None, plan: BuildPlan, version: str, **facts: Any) -> None:
    manifest = compose_manifest(plan.config, version, BuildFacts(features=plan.features, **facts))
    plan.lake.stages.write(plan.result, manifest.to_json().encode())
