"""The dedupe stage in Beam: near-duplicate images of all documents, over arrays that are partitioned by what must meet.

    documents -> images, packed -> by code ---> distinct codes -> by key -> neighbours, clusters of each partition
                                      |                                         |             |
                                      |                                      by code     clusters (one worker)
                                      |                                         |             |
                                      `----> occurrences of a partition <-------'<------------' by code
                                                   |
                                               duplicates -> documents to drop

Only arrays travel, some thousands of rows an element: what a row costs is what numpy takes for it. The number of
partitions follows from the number of images. However skewed the data, no partition of keys takes long: equal codes are
one row, and a crowded bucket of near ones is cut into cells.

What is not bounded: the occurrences of one code are in one partition, as arrays; one worker makes the clusters, from
the codes that have a neighbour; `keep-first`, an order over documents, has all duplicates on one worker, as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, TaggedOutput

from pipelines.dedupe.columns import Columns
from pipelines.dedupe.duplicates import (
    Clusters,
    Codes,
    Duplicates,
    Neighbours,
    Occurrences,
    cut_crowded,
    duplicate_rows,
    find_duplicates,
    find_neighbours,
    keyed_codes,
    mark_dropped,
    merge_clusters,
    pack_images,
)
from pipelines.documents.settle import SettledDocument
from pipelines.documents.transforms import LeaveOut
from pipelines.settings import Policy
from schemas.duplicates import Duplicate
from schemas.failures import Failure, Reason, Stage

ELEMENTS_AT_ONCE = 2048  # packed together
ROWS_PER_PARTITION, MAX_PARTITIONS = 1 << 16, 256
CROWDED = 1 << 16  # codes of a bucket that one worker compares: some seconds
ROWS, DROPPED = "rows", "dropped"

Partition = tuple[int, int]  # bytes of a value, number

T = TypeVar("T", bound=Columns)


class Deduped(NamedTuple):
    """What near-duplicate search found, and the ids of the documents that the policy drops, once each."""

    duplicates: beam.PCollection[Duplicate]
    dropped: beam.PCollection[str]


class Unique(NamedTuple):
    """Documents that stay, every duplicate occurrence, and the failures of the documents that go."""

    documents: beam.PCollection[SettledDocument]
    duplicates: beam.PCollection[Duplicate]
    failures: beam.PCollection[Failure]


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Finds near-duplicates among settled documents and does what the policy says: gives `Unique`."""

    radius: int
    policy: Policy

    def expand(self, documents: beam.PCollection[SettledDocument]) -> Unique:
        found = documents | "find" >> FindDuplicates(self.radius, self.policy)
        if self.policy is Policy.KEEP_ALL:
            return Unique(documents, found.duplicates, documents.pipeline | "none dropped" >> beam.Create([]))
        kept = (documents, found.dropped) | "keep" >> LeaveOut()
        return Unique(kept, found.duplicates, found.dropped | "failures" >> beam.Map(_duplicate_failure))


def _duplicate_failure(document_id: str) -> Failure:
    message = "an image of it has a near-duplicate in the data set; see the duplicates table"
    return Failure(Stage.DEDUPE, document_id, Reason.DUPLICATE_IMAGE, message)


@dataclass(eq=False)
class FindDuplicates(beam.PTransform):
    """Every occurrence of an image with a near-duplicate: settled documents to `Deduped`.

    Attributes:
        radius: two images are duplicates when their fingerprints differ in at most this many bits.
        policy: what happens to their documents.
        rows: of a partition, about.
        crowded: codes of a bucket beyond which it is cut.
    """

    radius: int
    policy: Policy
    rows: int = ROWS_PER_PARTITION
    crowded: int = CROWDED

    def expand(self, documents: beam.PCollection[SettledDocument]) -> Deduped:
        packed = documents | "pack" >> Pack(pack_images)
        count = AsSingleton(packed | "count" >> CountRows())
        by_code = beam.FlatMap(divide, count, by="codes", rows=self.rows)
        occurrences = packed | "by code" >> by_code
        keyed = occurrences | "codes" >> Gather(Occurrences) | "by key" >> beam.FlatMap(self._by_key, count)
        cells = keyed | "keys" >> Gather(Codes) | "cut" >> beam.FlatMap(cut_crowded, self.crowded)
        near = cells | "spread" >> beam.Reshuffle() | "compare" >> beam.Map(find_neighbours, self.radius)
        neighbours = near | "neighbours" >> beam.Keys() | "neighbours by code" >> by_code
        parts = near | "parts of clusters" >> beam.Values() | "all parts" >> beam.combiners.ToList()
        clusters = parts | "clusters" >> beam.Map(merge_clusters) | "clusters by code" >> by_code
        joined = {"occurrences": occurrences, "neighbours": neighbours, "clusters": clusters} | beam.CoGroupByKey()
        found = joined | "judge" >> beam.MapTuple(_judge)
        if self.policy is Policy.KEEP_FIRST:
            found = found | "all" >> beam.combiners.ToList() | "in one" >> beam.Map(Duplicates.concatenate)
        rows = found | "rows" >> beam.FlatMap(_rows, self.policy).with_outputs(DROPPED, main=ROWS)
        return Deduped(rows[ROWS], rows[DROPPED] | "once" >> beam.Distinct())

    def _by_key(self, occurrences: Occurrences, count: int) -> Iterator[tuple[tuple[int, Partition], Codes]]:
        for key, codes in enumerate(keyed_codes(occurrences, radius=self.radius, count=count)):
            for partition, some in divide(codes, count, by="keys", rows=self.rows):
                yield (key, partition), some


@dataclass(eq=False)
class Pack(beam.PTransform):
    """Applies a function from some elements to tables of rows to all elements."""

    function: Callable[[Sequence[Any]], Iterable[Columns]]

    def expand(self, elements: beam.PCollection) -> beam.PCollection[Columns]:
        size = ELEMENTS_AT_ONCE
        return elements | beam.BatchElements(min_batch_size=size, max_batch_size=size) | beam.FlatMap(self.function)


class CountRows(beam.PTransform):
    """The number of rows of all packs."""

    def expand(self, packed: beam.PCollection[Columns]) -> beam.PCollection[int]:
        return packed | "rows" >> beam.Map(len) | "add" >> beam.CombineGlobally(sum)


@dataclass(eq=False)
class Gather(beam.PTransform):
    """(key, rows) to all rows of each key."""

    kind: type[Columns]

    def expand(self, parts: beam.PCollection[tuple[Any, Columns]]) -> beam.PCollection[Columns]:
        return parts | "group" >> beam.GroupByKey() | beam.Values() | "concatenate" >> beam.Map(self.kind.concatenate)


def divide(table: T, count: int, *, by: str, rows: int = ROWS_PER_PARTITION) -> Iterator[tuple[Partition, T]]:
    """Yield (partition, its rows) of a pack, each partition with the width of the values it is made by.

    Args:
        table: the pack.
        count: rows of all packs: the number of partitions follows from it.
        by: name of the column whose equal values are in one partition.
        rows: of a partition, about.
    """
    values = getattr(table, by)
    for partition, part in table.divide(values, min(MAX_PARTITIONS, max(1, -(-count // rows)))):
        yield (values.itemsize, partition), part


def _judge(_: Partition, parts: dict[str, Iterable[Any]]) -> Duplicates:
    return find_duplicates(
        Occurrences.concatenate(parts["occurrences"]),
        Neighbours.concatenate(parts["neighbours"]),
        Clusters.concatenate(parts["clusters"]),
    )


def _rows(duplicates: Duplicates, policy: Policy) -> Iterator[Duplicate | TaggedOutput]:
    is_dropped = mark_dropped(duplicates, policy)
    for document in sorted(set(duplicates.documents[is_dropped].tolist())):
        yield TaggedOutput(DROPPED, document)
    yield from duplicate_rows(duplicates, is_dropped)
