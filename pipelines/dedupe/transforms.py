"""Near-duplicate images of all documents in Beam, over arrays that are partitioned by what must meet.

    documents -> images, packed -> by code ---> candidates, by key -> neighbours, clusters of each partition
                                      |                                         |             |
                                      |                                      by code       clusters
                                      |                                         |             |
                                      `----> occurrences of a partition <-------'<------------' by code
                                                   |
                                               duplicates -> documents to drop

A `Search` says what the candidates are and which of them are near: perceptual hashes here, vectors of features in
`pipelines.copy_detection`. Only arrays travel, some thousands of rows an element: what a row costs is what numpy takes
for it. The number of partitions follows from the number of images. However skewed the data, no partition of keys takes
long: equal codes are one row, and a crowded bucket of near ones is cut into cells. An image keeps its nearest and its
cluster: no list of pairs is held.

What is not bounded: the occurrences of one code are in one partition, as arrays; the last merge of the clusters has
each code with a neighbour once, 96 bytes; `keep-first`, an order over documents, has all duplicates on one worker, as
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import TaggedOutput

from pipelines.dedupe.duplicates import (
    Clusters,
    Codes,
    Duplicates,
    Near,
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
    near_codes,
    pack_images,
)
from pipelines.documents.rules import id_of
from pipelines.partitions.transforms import ROWS_PER_PARTITION, CountRows, Gather, Pack, Partition, divide
from pipelines.settings import Policy
from pipelines.transforms import LeaveOut, StageOutput, off
from schemas.failures import Failure, Reason, Stage

CROWDED = 1 << 16  # codes of a bucket that one worker compares: some seconds
ROWS, DROPPED, COUNTS = "rows", "dropped", "counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How near-duplicates are found.

    Attributes:
        pack: yields the images of some documents as `Occurrences`.
        candidates: returns PCollection[(partition of keys, candidates)] of the documents, of their occurrences by
            partitions of codes, and of the number of these as a side input.
        kind: of the candidates.
        near: yields rows of candidates with equal keys that are near one another, and their distances.
        crowded: candidates with one key beyond which they are cut.
        rows_of: yields rows of a table for duplicates and whether each is dropped.
        of_itself: whether an image that occurs twice is a duplicate for that alone.
        stage: of the failures.
        table: its name.
        message: why a document goes.
    """

    pack: Callable[[Sequence[Any]], Iterable[Occurrences]]
    candidates: Callable[[Any, Any, Any], beam.PCollection]
    kind: type[Codes] = Codes
    near: Near[Any]
    crowded: int = CROWDED
    rows_of: Callable[[Duplicates, npt.NDArray[np.bool_]], Iterable[Any]] = duplicate_rows
    of_itself: bool = True
    stage: Stage
    table: str
    message: str


def by_hash(radius: int, *, rows: int = ROWS_PER_PARTITION, crowded: int = CROWDED) -> Search:
    """Return the search for images whose fingerprints differ in at most `radius` bits.

    Args:
        radius: in bits.
        rows: of a partition, about.
        crowded: codes of a bucket beyond which it is cut.
    """
    return Search(
        pack=pack_images,
        candidates=partial(_of_codes, radius=radius, rows=rows),
        near=partial(near_codes, radius=radius),
        crowded=crowded,
        stage=Stage.DEDUPE,
        table="duplicates",
        message="an image of it has a near-duplicate in the data set; see the duplicates table",
    )


def _of_codes(_: Any, occurrences: beam.PCollection, count: Any, *, radius: int, rows: int) -> beam.PCollection:
    by_key = beam.FlatMap(_by_key, count, radius=radius, rows=rows)
    return occurrences | "codes" >> Gather(Occurrences) | "by key" >> by_key


def _by_key(occurrences: Occurrences, count: int, radius: int, rows: int) -> Iterator[tuple[Any, Codes]]:
    for key, codes in enumerate(keyed_codes(occurrences, radius=radius, count=count)):
        for partition, some in divide(codes, count, by="keys", rows=rows):
            yield (key, partition), some


class FoundDuplicates(NamedTuple):
    """What a search found: rows of its table, ids of the documents that the policy drops, and tallies of things.

    An id is there once for each partition in which the document is a duplicate. Things are those of `count_duplicates`.
    """

    duplicates: beam.PCollection
    dropped: beam.PCollection
    counts: beam.PCollection


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Finds near-duplicates among documents and does what the policy says.

    Attributes:
        search: finds them; None: nothing is done.
    """

    search: Search | None
    policy: Policy

    def expand(self, documents: beam.PCollection) -> StageOutput:
        search = self.search
        if search is None:
            return off(documents)
        found = documents | "find" >> FindDuplicates(search, self.policy)
        kept, failures = documents, tuple[beam.PCollection, ...]()
        if self.policy is not Policy.KEEP_ALL:
            dropped = found.dropped | "once" >> beam.Distinct()
            kept = (documents, dropped) | "keep" >> LeaveOut(id_of)
            failed = beam.Map(lambda name: Failure(search.stage, name, Reason.DUPLICATE_IMAGE, search.message))
            failures = (dropped | "failures" >> failed,)
        tables, counts = {search.table: found.duplicates}, (found.counts,)
        return StageOutput(kept, failures, {search.stage: (kept,)}, counts, tables)


@dataclass(eq=False)
class FindDuplicates(beam.PTransform):
    """Every occurrence of an image with a near-duplicate: documents to `FoundDuplicates`."""

    search: Search
    policy: Policy
    rows: int = ROWS_PER_PARTITION

    def expand(self, documents: beam.PCollection) -> FoundDuplicates:
        search = self.search
        packed = documents | "pack" >> Pack(search.pack)
        count = packed | "count" >> CountRows()
        by_code = beam.FlatMap(divide, count, by="codes", rows=self.rows)
        occurrences = packed | "by code" >> by_code
        keyed = search.candidates(documents, occurrences, count)
        cells = keyed | "keys" >> Gather(search.kind) | "cut" >> beam.FlatMap(cut_crowded, search.crowded)
        near = cells | "spread" >> beam.Reshuffle() | "compare" >> beam.Map(find_neighbours, search.near)
        neighbours = near | "neighbours" >> beam.Keys() | "neighbours by code" >> by_code
        merge = beam.CombineGlobally(merge_clusters).without_defaults()
        clusters = near | beam.Values() | "clusters" >> merge | "clusters by code" >> by_code
        joined = {"occurrences": occurrences, "neighbours": neighbours, "clusters": clusters} | beam.CoGroupByKey()
        found = joined | "judge" >> beam.MapTuple(self._judge)
        if self.policy is Policy.KEEP_FIRST:
            found = found | "all" >> beam.combiners.ToList() | "in one" >> beam.Map(Duplicates.concatenate)
        rows = found | "rows" >> beam.FlatMap(self._rows).with_outputs(DROPPED, COUNTS, main=ROWS)
        return FoundDuplicates(rows[ROWS], rows[DROPPED], rows[COUNTS])

    def _judge(self, _: Partition, parts: dict[str, Iterable[Any]]) -> Duplicates:
        return find_duplicates(
            Occurrences.concatenate(parts["occurrences"]),
            Neighbours.concatenate(parts["neighbours"]),
            Clusters.concatenate(parts["clusters"]),
            of_itself=self.search.of_itself,
        )

    def _rows(self, duplicates: Duplicates) -> Iterator[Any]:
        is_dropped = mark_dropped(duplicates, self.policy)
        for document in sorted(set(duplicates.documents[is_dropped].tolist())):
            yield TaggedOutput(DROPPED, document)
        for thing, number in count_duplicates(duplicates, is_dropped).items():
            yield TaggedOutput(COUNTS, ((self.search.table, thing), number))
        yield from self.search.rows_of(duplicates, is_dropped)
