"""The shards stage in Beam: every document to its shard, every shard to its parts; and the tables.

The number of shards follows from the number of documents, their names and content from hashes: neither the number of
workers nor the order in which elements arrive shows in the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from pipelines.documents.settle import SettledDocument
from pipelines.features.extraction import FeaturedDocument
from pipelines.progress import Progress
from pipelines.settings import ShardsConfig
from pipelines.shards.manifest import Message, add_digests, commonest, content_digest, kind_of, merge_messages
from pipelines.shards.rights import rights_of_document, rights_of_image
from pipelines.shards.writing import HASH_BYTES, ShardSummary, ShardWriter, part_name, write_rows
from pipelines.splits.assign import shard_count, shard_of
from schemas.documents import Document, Split
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.tables import row_of

ShardKey = tuple[str, int]
ROWS_PER_PART = 100_000


class Shards(NamedTuple):
    """The written shards: a `ShardSummary` each; and (split, number of different images that it shows)."""

    summaries: beam.PCollection
    unique_images: beam.PCollection


@dataclass(eq=False)
class WriteShards(beam.PTransform):
    """Writes every shard of a version, from documents that know where everything of theirs is: gives `Shards`.

    Attributes:
        writer: what is written, and where.
        version: PCollection of the one version name.
    """

    config: ShardsConfig
    writer: ShardWriter
    progress: Progress
    version: beam.PCollection

    def expand(self, documents: beam.PCollection) -> Shards:
        totals = documents | "splits" >> beam.Map(_split_of) | "documents" >> beam.combiners.Count.PerElement()
        counts = beam.pvalue.AsDict(totals | "count shards" >> beam.MapTuple(self._shards_of))
        keyed = documents | "choose shard" >> beam.Map(_shard_key, counts=counts)
        every = documents.pipeline | beam.Create([None]) | "every shard" >> beam.FlatMap(_every_shard, counts=counts)
        written = (
            (keyed, every)
            | "gather shards" >> beam.CoGroupByKey()
            | "write" >> beam.Map(self._write, counts=counts, version=beam.pvalue.AsSingleton(self.version))
        )
        unique = (
            written
            | "hashes" >> beam.FlatMapTuple(_hashes_of)
            | "gather hashes" >> beam.GroupByKey()
            | "unique" >> beam.MapTuple(_count_hashes)
            | "of splits" >> beam.CombinePerKey(sum)
        )
        return Shards(written | "summaries" >> beam.Keys(), unique)

    def _shards_of(self, split: str, documents: int) -> tuple[str, int]:
        return split, shard_count(documents, self.config)

    def _write(
        self,
        group: tuple[ShardKey, tuple[Iterable[FeaturedDocument], Any]],
        counts: Mapping[str, int],
        version: str,
    ) -> tuple[ShardSummary, bytes]:
        (split, index), (documents, _) = group
        written = self.writer.write(version, documents, split=Split(split), name=part_name(index, counts[split]))
        self.progress.advance("shards")
        return written


def _split_of(featured: FeaturedDocument) -> str:
    return str(featured.document.split)


def _shard_key(featured: FeaturedDocument, counts: Mapping[str, int]) -> tuple[ShardKey, FeaturedDocument]:
    split = _split_of(featured)
    return (split, shard_of(featured.document.id, count=counts[split])), featured


def _every_shard(_: None, counts: Mapping[str, int]) -> Iterator[tuple[ShardKey, None]]:
    for split, count in counts.items():
        for index in range(count):
            yield (split, index), None


def _hashes_of(summary: ShardSummary, hashes: bytes) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yield the hashes of a shard under its split and their first byte, so that no worker gets all of a split."""
    every = np.frombuffer(hashes, f"S{HASH_BYTES}")
    first = np.frombuffer(hashes, np.uint8)[::HASH_BYTES]
    for byte in np.unique(first).tolist():
        yield (str(summary.split), byte), every[first == byte].tobytes()


def _count_hashes(key: tuple[str, int], hashes: Iterable[bytes]) -> tuple[str, int]:
    return key[0], len(np.unique(np.frombuffer(b"".join(hashes), f"S{HASH_BYTES}")))


@dataclass(eq=False)
class WriteTable(beam.PTransform):
    """Writes elements as sorted parts of a table: gives a `FileEntry` each.

    Attributes:
        folder: gives the folder of a version.
        path: of the table's parts in it; empty: the folder itself.
        schema: of the table.
        version: PCollection of the one version name.
    """

    folder: Callable[[str], Folder]
    path: str
    schema: pa.Schema
    version: beam.PCollection

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        rows = elements | "rows" >> beam.Map(self._sortable)
        count = rows | "count" >> beam.combiners.Count.Globally() | "count parts" >> beam.Map(_parts_of)
        parts = beam.pvalue.AsSingleton(count)
        gathered = rows | "choose part" >> beam.Map(_part_key, parts=parts) | "gather parts" >> beam.GroupByKey()
        return gathered | "write" >> beam.Map(self._write, parts=parts, version=beam.pvalue.AsSingleton(self.version))

    def _sortable(self, element: Any) -> tuple[str, dict[str, Any]]:
        """Return a row behind a text that orders rows by their columns, the first of them first."""
        row = row_of(element)
        return json.dumps([*row.values()], default=str, ensure_ascii=False), row

    def _write(self, group: tuple[int, Iterable[tuple[str, dict[str, Any]]]], parts: int, version: str) -> FileEntry:
        index, keyed = group
        rows = [row for _, row in sorted(keyed, key=lambda pair: pair[0])]
        return write_rows(self.folder(version), f"{self.path}/{part_name(index, parts)}".lstrip("/"), rows, self.schema)


def _parts_of(elements: int) -> int:
    return max(1, -(-elements // ROWS_PER_PART))


def _part_key(keyed: tuple[str, dict[str, Any]], parts: int) -> tuple[int, tuple[str, dict[str, Any]]]:
    return shard_of(keyed[0], count=parts), keyed


class ExplainFailures(beam.PTransform):
    """Failures to (reason, the commonest `Message` of its failures)."""

    def expand(self, failures: beam.PCollection) -> beam.PCollection:
        return (
            failures
            | "kinds of messages" >> beam.Map(kind_of)
            | "count messages" >> beam.CombinePerKey(merge_messages)
            | "of reasons" >> beam.MapTuple(_of_reason)
            | "commonest" >> beam.CombinePerKey(commonest)
        )


def _of_reason(kind: tuple[str, str], message: Message) -> tuple[str, Message]:
    return kind[0], message


@dataclass(eq=False)
class CountRights(beam.PTransform):
    """(featured documents, featured images) to ((kind, what is stated), number) of each thing that is stated."""

    def expand(self, featured: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        documents, images = featured
        stated = (
            documents | "of documents" >> beam.FlatMap(rights_of_document),
            images | "of images" >> beam.FlatMap(rights_of_image),
        ) | "all that is stated" >> beam.Flatten()
        return stated | "count" >> beam.combiners.Count.PerElement()


class DigestInputs(beam.PTransform):
    """(settled documents, failures of reading) to the digest of all of them: whatever the order, the same number."""

    def expand(self, read: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        settled, failures = read
        documents = settled | "documents" >> beam.Map(_document)
        return (
            (documents, failures)
            | "all that was read" >> beam.Flatten()
            | "digests" >> beam.Map(content_digest)
            | "add" >> beam.CombineGlobally(add_digests)
        )


def _document(settled: SettledDocument) -> Document:
    return settled.document
