"""Near-duplicate images of all documents in Beam, over arrays that are partitioned by what must meet.

    documents -> images, packed -> by code ---> candidates, by key -> neighbours, clusters of each partition
                                      |                                         |             |
                                      |                                      by code       clusters
                                      |                                         |             |
                                      `----> occurrences of a partition <-------'<------------' by code
                                                   |
                                               duplicates -> documents to drop

Only arrays travel, some thousands of rows an element: what a row costs is what numpy takes for it. The number of
partitions follows from the number of images. However skewed the data, no partition of keys takes long: equal codes are
one row, and a crowded bucket of near ones is cut into cells. An image keeps its nearest and its cluster: no list of
pairs is held.

What is not bounded: the occurrences of one code are in one partition, as arrays; the last merge of the clusters has
each code with a neighbour once, 96 bytes; `keep-first`, an order over documents, has all duplicates on one worker, as
arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from pipelines.dedupe.duplicates import (
    Clusters,
    Codes,
    Duplicates,
    Neighbours,
    Occurrences,
    count_duplicates,
    cut_crowded,
    duplicate_rows,
    find_duplicates,
    find_neighbours,
    keyed_codes,
    mark_dropped,
    merge_clusters,
    pack_images,
)
from pipelines.documents.rules import id_of
from pipelines.partitions.transforms import ROWS_PER_PARTITION, CountRows, Gather, Pack, Partition, divide
from pipelines.settings import DedupeConfig, Policy
from pipelines.transforms import LeaveOut, StageOutput
from schemas.failures import Failure, Reason, Stage

CROWDED = 1 << 16  # codes of a bucket that one worker compares: some seconds
ROWS, DROPPED, COUNTS = "rows", "dropped", "counts"
TABLE = "duplicates"
_MESSAGE = "an image of it has a near-duplicate in the data set; see the duplicates table"


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Finds near-duplicates among documents and does what the policy says."""

    config: DedupeConfig

    def expand(self, documents: beam.PCollection) -> StageOutput:
        found = documents | "find" >> FindDuplicates(self.config.radius, self.config.policy)
        kept, failures = documents, tuple[beam.PCollection, ...]()
        if self.config.policy is not Policy.KEEP_ALL:
            dropped = found.dropped | "once" >> beam.Distinct()
            kept = (documents, dropped) | "keep" >> LeaveOut(id_of)
            failures = (dropped | "failures" >> beam.Map(_duplicate_failure),)
        return StageOutput(kept, failures, {Stage.DEDUPE: (kept,)}, (found.counts,), {TABLE: found.duplicates})


def _duplicate_failure(document_id: str) -> Failure:
    return Failure(Stage.DEDUPE, document_id, Reason.DUPLICATE_IMAGE, _MESSAGE)


class FoundDuplicates(NamedTuple):
    """What a search found: rows of the table, ids of the documents that the policy drops, and tallies of things.

    An id is there once for each partition in which the document is a duplicate. Things are those of `count_duplicates`.
    """

    duplicates: beam.PCollection
    dropped: beam.PCollection
    counts: beam.PCollection


@dataclass(eq=False)
class FindDuplicates(beam.PTransform):
    """Every occurrence of an image with a near-duplicate: documents to `FoundDuplicates`.

    Attributes:
        radius: in bits, that fingerprints of near-duplicates may differ in.
        rows: of a partition, about.
        crowded: codes of a bucket beyond which it is cut.
    """

    radius: int
    policy: Policy
    rows: int = ROWS_PER_PARTITION
    crowded: int = CROWDED

    def expand(self, documents: beam.PCollection) -> FoundDuplicates:
        packed = documents | "pack" >> Pack(pack_images)
        count = packed | "count" >> CountRows()
        by_code = beam.FlatMap(divide, count, by="codes", rows=self.rows)
        occurrences = packed | "by code" >> by_code
        keyed = occurrences | "codes" >> Gather(Occurrences) | "by key" >> beam.FlatMap(self._by_key, count)
        cells = keyed | "keys" >> Gather(Codes) | "cut" >> beam.FlatMap(cut_crowded, self.crowded)
        near = cells | "spread" >> beam.Reshuffle() | "compare" >> beam.Map(find_neighbours, self.radius)
        neighbours = near | "neighbours" >> beam.Keys() | "neighbours by code" >> by_code
        merge = beam.CombineGlobally(merge_clusters).without_defaults()
        clusters = near | beam.Values() | "clusters" >> merge | "clusters by code" >> by_code
        joined = {"occurrences": occurrences, "neighbours": neighbours, "clusters": clusters} | beam.CoGroupByKey()
        found = joined | "judge" >> beam.MapTuple(_judge)
        if self.policy is Policy.KEEP_FIRST:
            found = found | "all" >> beam.combiners.ToList() | "in one" >> beam.Map(Duplicates.concatenate)
        rows = found | "rows" >> beam.FlatMap(self._rows).with_outputs(DROPPED, COUNTS, main=ROWS)
        return FoundDuplicates(rows[ROWS], rows[DROPPED], rows[COUNTS])

    def _by_key(self, occurrences: Occurrences, count: int) -> Iterator[tuple[Any, Codes]]:
        for key, codes in enumerate(keyed_codes(occurrences, radius=self.radius, count=count)):
            for partition, some in divide(codes, count, by="keys", rows=self.rows):
                yield (key, partition), some

    def _rows(self, duplicates: Duplicates) -> Iterator[Any]:
        is_dropped = mark_dropped(duplicates, self.policy)
        for document in sorted(set(duplicates.documents[is_dropped].tolist())):
            yield TaggedOutput(DROPPED, document)
        for thing, number in count_duplicates(duplicates, is_dropped).items():
            yield TaggedOutput(COUNTS, ((TABLE, thing), number))
        yield from duplicate_rows(duplicates, is_dropped)


def _judge(_: Partition, parts: dict[str, Iterable[Any]]) -> Duplicates:
    return find_duplicates(
        Occurrences.concatenate(parts["occurrences"]),
        Neighbours.concatenate(parts["neighbours"]),
        Clusters.concatenate(parts["clusters"]),
    )
