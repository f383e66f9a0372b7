"""The shards stage in Beam: every document to its shard, every shard to its parts; and the tables.

The number of shards follows from the number of documents, their names and content from hashes: neither the number of
workers nor the order in which elements arrive shows in the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import apache_beam as beam

from pipelines.features.extraction import FeaturedDocument
from pipelines.settings import ShardsConfig
from pipelines.shards.writing import (
    TABLES,
    ShardWriter,
    WrittenShard,
    add_digests,
    content_digest,
    part_name,
    write_rows,
)
from pipelines.splits.assign import shard_count, shard_of
from pipelines.transforms import Fact, StageOutput, Tally
from schemas.documents import Split
from schemas.failures import Stage
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.raw import UNREACHED
from schemas.tables import row_of

ShardKey = tuple[str, int]
PartKey = tuple[str, int]
ROWS_PER_PART = 20_000  # some 2 kB each while they are sorted


@dataclass(eq=False)
class WriteShards(beam.PTransform):
    """Writes every shard of a version, from documents that know where everything of theirs is.

    It counts `sizes` of documents and `unique_images` of splits. Its facts are `shards`, a `ShardSummary` each.

    Attributes:
        writer: what is written, and where.
        version: PCollection of the one version name.
    """

    config: ShardsConfig
    writer: ShardWriter
    version: beam.PCollection

    def expand(self, documents: beam.PCollection) -> StageOutput:
        totals = documents | "splits" >> beam.Map(_split_of) | "documents" >> beam.combiners.Count.PerElement()
        shards_of = beam.MapTuple(lambda split, number: (split, shard_count(number, self.config)))
        counts = beam.pvalue.AsDict(totals | "count shards" >> shards_of)
        keyed = documents | "choose shard" >> beam.Map(_shard_key, counts=counts)
        every = documents.pipeline | beam.Impulse() | "every shard" >> beam.FlatMap(_every_shard, counts=counts)
        written = (
            (keyed, every)
            | "gather shards" >> beam.CoGroupByKey()
            | "write" >> beam.Map(self._write, counts=counts, version=beam.pvalue.AsSingleton(self.version))
        )
        shown = written | "hashes" >> beam.FlatMap(_hashes_of) | "different" >> beam.Distinct()
        unique = shown | "unique" >> beam.ParDo(Tally(_unique_image))
        sizes = written | "sizes" >> beam.FlatMap(_sizes_of)
        facts = {"shards": written | "summaries" >> beam.Map(itemgetter(0))}
        return StageOutput(documents, passed={Stage.SHARDS: (documents,)}, counts=(sizes, unique), facts=facts)

    def _write(
        self,
        group: tuple[ShardKey, tuple[Iterable[FeaturedDocument], Any]],
        counts: Mapping[str, int],
        version: str,
    ) -> WrittenShard:
        (split, index), (documents, _) = group
        return self.writer.write(version, documents, split=Split(split), name=part_name(index, counts[split]))


def _split_of(featured: FeaturedDocument) -> str:
    return str(featured.document.split)


def _shard_key(featured: FeaturedDocument, counts: Mapping[str, int]) -> tuple[ShardKey, FeaturedDocument]:
    split = _split_of(featured)
    return (split, shard_of(featured.document.id, count=counts[split])), featured


def _every_shard(_: bytes, counts: Mapping[str, int]) -> Iterator[tuple[ShardKey, None]]:
    for split, count in counts.items():
        for index in range(count):
            yield (split, index), None


def _sizes_of(shard: WrittenShard) -> Iterator[tuple[Fact, int]]:
    summary, sizes, _ = shard
    for size, number in sizes.items():
        yield ("sizes", (str(summary.split), size)), number


def _hashes_of(shard: WrittenShard) -> Iterator[tuple[str, bytes]]:
    summary, _, hashes = shard
    for each in hashes:
        yield str(summary.split), each


def _unique_image(shown: tuple[str, bytes]) -> list[Fact]:
    return [("unique_images", shown[0])]


@dataclass(eq=False)
class WriteTables(beam.PTransform):
    """Writes elements of several tables, each as sorted parts: gives the `FileEntry` of each part of the version.

    Attributes:
        folders: of the tables, by name: each gives the folder of a version.
        version: PCollection of the one version name.
    """

    folders: Mapping[str, Callable[[str], Folder]]
    version: beam.PCollection

    def expand(self, elements: Mapping[str, beam.PCollection]) -> beam.PCollection[FileEntry]:
        of_each = [some | f"{name} rows" >> beam.Map(partial(_sortable, name)) for name, some in elements.items()]
        rows = of_each | "rows" >> beam.Flatten()
        counts = rows | "tables" >> beam.Keys() | "count" >> beam.combiners.Count.PerElement()
        parts_of = beam.MapTuple(lambda name, elements: (name, -(-elements // ROWS_PER_PART)))
        parts = beam.pvalue.AsDict(counts | "count parts" >> parts_of)
        gathered = rows | "choose part" >> beam.Map(_part_key, parts=parts) | "gather parts" >> beam.GroupByKey()
        write = beam.FlatMap(self._write, parts=parts, version=beam.pvalue.AsSingleton(self.version))
        return gathered | "write" >> write

    def _write(
        self, group: tuple[PartKey, Iterable[tuple[str, dict[str, Any]]]], parts: Mapping[str, int], version: str
    ) -> Iterator[FileEntry]:
        (name, index), keyed = group
        rows, path = [row for _, row in sorted(keyed, key=itemgetter(0))], f"{name}/{part_name(index, parts[name])}"
        entry = write_rows(self.folders[name](version), path, rows, TABLES[name])
        if name != UNREACHED:
            yield entry


def _sortable(name: str, element: Any) -> tuple[str, tuple[str, dict[str, Any]]]:
    """Return a row of a table behind a text that orders rows by their columns, the first of them first."""
    row = row_of(element)
    return name, (json.dumps([*row.values()], default=str, ensure_ascii=False), row)


def _part_key(
    keyed: tuple[str, tuple[str, dict[str, Any]]], parts: Mapping[str, int]
) -> tuple[PartKey, tuple[str, dict[str, Any]]]:
    name, row = keyed
    return (name, shard_of(row[0], count=parts[name])), row


class DigestInputs(beam.PTransform):
    """(settled documents, failures of reading) to the digest of all of them: whatever the order, the same number."""

    def expand(self, read: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        settled, failures = read
        documents = settled | "documents" >> beam.Map(attrgetter("document"))
        return (
            (documents, failures)
            | "all that was read" >> beam.Flatten()
            | "digests" >> beam.Map(content_digest)
            | "add" >> beam.CombineGlobally(add_digests)
        )
