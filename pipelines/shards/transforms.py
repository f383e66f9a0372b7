"""The shards stage in Beam: every document to its split and shard, every shard to its pair of Parquet parts.

The number of shards follows from the number of documents, their names and content from hashes: neither the number of
workers nor the order in which elements arrive shows in the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from pipelines.config import ShardsConfig, SplitsConfig
from pipelines.documents.transforms import image_refs
from pipelines.images.store import ImageStore
from pipelines.progress import Progress
from pipelines.shards.splits import Survey, final_split, merge_surveys, shard_count, shard_of, survey_one
from pipelines.shards.writing import (
    Dimensions,
    DocumentWithVectors,
    ImageWithVectors,
    part_name,
    write_shard,
    write_table,
)
from schemas.documents import Document, Split
from schemas.lake import Lake
from schemas.tables import to_table

ShardKey = tuple[str, int]
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
        images: PCollection[(content hash, ImageWithVectors)] of every image the documents refer to.
        version: PCollection of the one version name.
    """

    config: ShardsConfig
    lake: Lake
    dataset: str
    store: ImageStore
    dimensions: Dimensions
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
            dimensions=self.dimensions,
            store=self.store,
        )
        self.progress.advance("shards")
        return summary


def _split_of(item: DocumentWithVectors) -> str:
    return str(item.document.split)


def _shard_key(item: DocumentWithVectors, counts: Mapping[str, int]) -> tuple[ShardKey, DocumentWithVectors]:
    split = _split_of(item)
    return (split, shard_of(item.document.id, count=counts[split])), item


def _wanted_images(keyed: tuple[ShardKey, DocumentWithVectors]) -> Iterator[tuple[str, ShardKey]]:
    key, item = keyed
    for content_hash in image_refs(item.document):
        yield content_hash, key


def _deliver(
    group: tuple[str, tuple[Iterable[ShardKey], Iterable[ImageWithVectors]]],
) -> Iterator[tuple[ShardKey, ImageWithVectors]]:
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
        folder = self.lake.dataset(self.dataset, version)
        return write_table(folder, f"{self.table}/{part_name(index, parts)}", rows)


def _parts_of(elements: int) -> int:
    return max(1, -(-elements // ROWS_PER_PART))


def _part_key(element: Any, parts: int) -> tuple[int, Any]:
    return shard_of(repr(element), count=parts), element
