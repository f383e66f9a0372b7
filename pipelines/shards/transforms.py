"""The shards stage in Beam: every document to its split and shard, every shard to its pair of Parquet parts.

The number of shards follows from the number of documents, their names and content from hashes: neither the number of
workers nor the order in which elements arrive shows in the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam

from pipelines.features.plan import FeaturePlan
from pipelines.images.store import ImageStore
from pipelines.progress import Progress
from pipelines.settings import ShardsConfig, SplitsConfig
from pipelines.shards.writing import part_name, write_shard, write_table
from pipelines.splits.assign import Survey, final_split, merge_surveys, shard_count, shard_of, survey_one
from pipelines.splits.leaks import LeakCount, leaks_of_group, near_image_leaks
from pipelines.splits.traces import Clue, Trace, clues_of, trace_of
from schemas.documents import Document, Split
from schemas.duplicates import Duplicate
from schemas.images import Image
from schemas.lake import Folder, Lake
from schemas.leaks import Leak, LeakKind
from schemas.tables import to_table

ShardKey = tuple[str, int]
LeakPlace = tuple[str, str, str]  # kind, split, other split
ROWS_PER_PART = 100_000


@dataclass(eq=False)
class AssignSplits(beam.PTransform):
    """Gives every document its split."""

    config: SplitsConfig

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        survey = documents | "survey" >> beam.Map(self._survey) | "merge" >> beam.CombineGlobally(_MergeSurveys())
        return documents | "assign" >> beam.Map(self._assign, survey=beam.pvalue.AsSingleton(survey))

    def _survey(self, document: Document) -> Survey:
        return survey_one(document.id, document.split, self.config)

    def _assign(self, document: Document, survey: Survey) -> Document:
        split = final_split(document.id, document.split, self.config, survey.moves(self.config))
        return dataclasses.replace(document, split=split)


class _MergeSurveys(beam.CombineFn):
    def create_accumulator(self) -> Survey:
        return Survey()

    def add_input(self, accumulator: Survey, survey: Survey) -> Survey:
        return merge_surveys((accumulator, survey))

    def merge_accumulators(self, accumulators: Iterable[Survey]) -> Survey:
        return merge_surveys(accumulators)

    def extract_output(self, accumulator: Survey) -> Survey:
        return accumulator


@dataclass(eq=False)
class WriteShards(beam.PTransform):
    """Writes every shard of a version: gives a `ShardSummary` each.

    Attributes:
        features: whose values are in the cache.
        images: PCollection[(content hash, Image)] of every image the documents refer to.
        version: PCollection of the one version name.
    """

    config: ShardsConfig
    lake: Lake
    dataset: str
    store: ImageStore
    features: FeaturePlan
    progress: Progress
    images: beam.PCollection
    version: beam.PCollection

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        totals = documents | "count splits" >> beam.Map(_split_of) | beam.combiners.Count.PerElement()
        counts = beam.pvalue.AsDict(totals | "count shards" >> beam.MapTuple(self._shards_of))
        keyed = documents | "choose shard" >> beam.Map(_shard_key, counts=counts)
        wanted = keyed | "list images" >> beam.FlatMap(_wanted_images) | "once a shard" >> beam.Distinct()
        pictures = (wanted, self.images) | "meet images" >> beam.CoGroupByKey() | "to shards" >> beam.FlatMap(_deliver)
        every = documents.pipeline | beam.Create([None]) | "every shard" >> beam.FlatMap(_every_shard, counts=counts)
        return (
            (keyed, pictures, every)
            | "gather shards" >> beam.CoGroupByKey()
            | "write" >> beam.Map(self._write, counts=counts, version=beam.pvalue.AsSingleton(self.version))
        )

    def _shards_of(self, split: str, documents: int) -> tuple[str, int]:
        return split, shard_count(documents, self.config)

    def _write(self, group: tuple[ShardKey, Any], counts: Mapping[str, int], version: str) -> Any:
        (split, index), (documents, pictures, _) = group
        summary = write_shard(
            self.lake.dataset(self.dataset, version),
            documents,
            pictures,
            split=Split(split),
            index=index,
            count=counts[split],
            features=self.features,
            store=self.store,
        )
        self.progress.advance("shards")
        return summary


def _split_of(document: Document) -> str:
    return str(document.split)


def _shard_key(document: Document, counts: Mapping[str, int]) -> tuple[ShardKey, Document]:
    split = _split_of(document)
    return (split, shard_of(document.id, count=counts[split])), document


def _wanted_images(keyed: tuple[ShardKey, Document]) -> Iterator[tuple[str, ShardKey]]:
    key, document = keyed
    for content_hash in sorted({image.hash for image in document.images}):
        yield content_hash, key


def _deliver(
    group: tuple[str, tuple[Iterable[ShardKey], Iterable[Image]]],
) -> Iterator[tuple[ShardKey, Image]]:
    _, (keys, pictures) = group
    keys = list(keys)
    for picture in pictures:
        for key in keys:
            yield (key[0], key[1]), picture


def _every_shard(_: None, counts: Mapping[str, int]) -> Iterator[tuple[ShardKey, None]]:
    for split, count in counts.items():
        for index in range(count):
            yield (split, index), None


@dataclass(eq=False)
class WriteRows(beam.PTransform):
    """Writes failures or duplicates as sorted parts: gives a `FileEntry` each.

    Attributes:
        table: folder of the parts.
        schema: pyarrow schema of the table.
        to_row: a row of one element (a dataclass with an order).
    """

    table: str
    schema: Any
    to_row: Callable[[Any], dict[str, Any]]
    lake: Lake
    dataset: str
    version: beam.PCollection

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        count = elements | "count" >> beam.combiners.Count.Globally() | "count parts" >> beam.Map(_parts_of)
        parts = beam.pvalue.AsSingleton(count)
        keyed = elements | "choose part" >> beam.Map(_part_key, parts=parts)
        return (
            keyed
            | "gather parts" >> beam.GroupByKey()
            | "write" >> beam.Map(self._write, parts=parts, version=beam.pvalue.AsSingleton(self.version))
        )

    def _write(self, group: tuple[int, Iterable[Any]], parts: int, version: str) -> Any:
        index, elements = group
        rows = to_table(map(self.to_row, sorted(elements, key=repr)), self.schema)
        return write_table(self.folder(version), f"{self.table}/{part_name(index, parts)}".lstrip("/"), rows)

    def folder(self, version: str) -> Folder:
        """Return the folder of a version's rows, in which the table has its own."""
        return self.lake.dataset(self.dataset, version)


def _parts_of(elements: int) -> int:
    return max(1, -(-elements // ROWS_PER_PART))


def _part_key(element: Any, parts: int) -> tuple[int, Any]:
    return shard_of(repr(element), count=parts), element


@dataclass(eq=False)
class FindLeaks(beam.PTransform):
    """Every leak between splits: PCollection[Document] (with splits) to PCollection[Leak].

    Near images are looked for inside the clusters of near-duplicates alone: two that are near are in one cluster.

    Attributes:
        radius: that of the dedupe stage.
        images: PCollection[(content hash, Image)].
        duplicates: PCollection[Duplicate] of the dedupe stage.
    """

    radius: int
    images: beam.PCollection
    duplicates: beam.PCollection

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        wanted = documents | "image places" >> beam.FlatMap(_places)
        met = (wanted, self.images) | "meet looks" >> beam.CoGroupByKey() | "hand out" >> beam.FlatMap(_hand_out)
        keyed = documents | "key by id" >> beam.Map(_key_by_id)
        traces = (keyed, met) | "meet images" >> beam.CoGroupByKey() | "traces" >> beam.FlatMap(_traces)
        shared = (
            traces
            | "clues" >> beam.FlatMap(_keyed_clues)
            | "group clues" >> beam.GroupByKey()
            | "leaks" >> beam.FlatMap(_leaks)
        )
        clusters = self.duplicates | "clusters" >> beam.Map(_cluster_of) | "once" >> beam.Distinct()
        near = (
            traces
            | "to clusters" >> beam.FlatMap(_by_cluster, clusters=beam.pvalue.AsDict(clusters))
            | "group clusters" >> beam.GroupByKey()
            | "near leaks" >> beam.FlatMap(self._near)
        )
        return (shared, near) | "both" >> beam.Flatten() | "once each" >> beam.Distinct()

    def _near(self, group: tuple[str, Iterable[Trace]]) -> Iterator[Leak]:
        _, traces = group
        yield from near_image_leaks(list(traces), radius=self.radius)


class CountLeaks(beam.PTransform):
    """PCollection[Leak] to a `LeakCount` of each kind and pair of splits: `leaks.count_leaks` of any number."""

    def expand(self, leaks: beam.PCollection) -> beam.PCollection:
        keys = leaks | "keys" >> beam.Map(_leaked_key) | "count keys" >> _CountDistinct()
        documents = leaks | "documents" >> beam.Map(_leaking_document) | "count documents" >> _CountDistinct()
        return (keys, documents) | "meet counts" >> beam.CoGroupByKey() | "leak counts" >> beam.MapTuple(_leak_count)


class _CountDistinct(beam.PTransform):
    """(place, item) to (place, number of different items)."""

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        return items | "once" >> beam.Distinct() | "places" >> beam.Keys() | beam.combiners.Count.PerElement()


def _leaked_key(leak: Leak) -> tuple[LeakPlace, str]:
    return (str(leak.kind), str(leak.split), str(leak.other_split)), leak.key


def _leaking_document(leak: Leak) -> tuple[LeakPlace, str]:
    return (str(leak.kind), str(leak.split), str(leak.other_split)), leak.document


def _leak_count(place: LeakPlace, counts: tuple[Iterable[int], Iterable[int]]) -> LeakCount:
    kind, split, other = place
    (keys,), (documents,) = counts
    return LeakCount(LeakKind(kind), Split(split), Split(other), keys, documents)


def _places(document: Document) -> Iterator[tuple[str, str]]:
    for content_hash in {image.hash for image in document.images}:
        yield content_hash, document.id


def _hand_out(group: tuple[str, tuple[Iterable[str], Iterable[Image]]]) -> Iterator[tuple[str, Image]]:
    _, (documents, images) = group
    (image,) = images
    for document in documents:
        yield document, image


def _key_by_id(document: Document) -> tuple[str, Document]:
    return document.id, document


def _traces(group: tuple[str, tuple[Iterable[Document], Iterable[Image]]]) -> Iterator[Trace]:
    _, (documents, images) = group
    by_hash = {image.hash: image for image in images}
    for document in documents:
        yield trace_of(document, by_hash)


def _keyed_clues(trace: Trace) -> Iterator[tuple[tuple[str, bytes], Clue]]:
    for clue in clues_of(trace):
        yield (str(clue.kind), clue.digest), clue


def _leaks(group: tuple[tuple[str, bytes], Iterable[Clue]]) -> Iterator[Leak]:
    _, clues = group
    yield from leaks_of_group(list(clues))


def _cluster_of(duplicate: Duplicate) -> tuple[str, str]:
    return duplicate.image, duplicate.cluster


def _by_cluster(trace: Trace, clusters: Mapping[str, str]) -> Iterator[tuple[str, Trace]]:
    for name in sorted({clusters[image.hash] for image in trace.images if image.hash in clusters}):
        images = tuple(image for image in trace.images if clusters.get(image.hash) == name)
        yield name, replace(trace, images=images, texts=())
