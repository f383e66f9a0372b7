"""Near-duplicate images on a cluster: the same answer as `policies.find_duplicates`, with the work split by band.

    occurrences -> grouped by look -> (band, key of that band) buckets -> pairs -> each look with its neighbours
                -> one worker: clusters and policy -> duplicates

Only looks that have a duplicate, few in any usable data set, reach the one worker. This file is wiring: what is done to
a bucket or to the looks is in `hamming` and `policies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics

from pipelines.config import Policy
from pipelines.dedupe.hamming import WORD_BITS, Bands, pairs_in_buckets, parse_fingerprints
from pipelines.dedupe.occurrences import LookAlikes, Neighbour, Occurrence
from pipelines.dedupe.policies import judge
from schemas.duplicates import Duplicate

BATCH = 4096  # fingerprints cut into bands in one go
OCCURRENCES, NEIGHBOURS = "occurrences", "neighbours"


@dataclass(eq=False)
class FindDuplicates(beam.PTransform):
    """Every occurrence of an image with a near-duplicate, with what the policy does about it.

    Attributes:
        radius: two images are duplicates when their fingerprints differ in at most this many bits.
        policy: what happens to their documents.
    """

    radius: int
    policy: Policy

    def expand(self, occurrences: beam.PCollection[Occurrence]) -> beam.PCollection[Duplicate]:
        by_look = (
            occurrences
            | "Leave out flat images" >> beam.Filter(_is_searchable)
            | "Key by look" >> beam.Map(_keyed_by_look).with_output_types(tuple[str, Occurrence])
            | "Collapse equal looks" >> beam.GroupByKey()
        )
        neighbours = (
            by_look
            | "Take fingerprints" >> beam.FlatMap(_fingerprint_of).with_output_types(str)
            | "Batch fingerprints" >> beam.BatchElements(min_batch_size=1, max_batch_size=BATCH)
            | "Cut into bands" >> beam.FlatMap(_buckets, radius=self.radius).with_output_types(tuple[str, str])
            | "Group by band" >> beam.GroupByKey()
            | "Compare within bands"
            >> beam.FlatMap(_compare, radius=self.radius).with_output_types(tuple[str, Neighbour])
        )
        return (
            {OCCURRENCES: by_look, NEIGHBOURS: neighbours}
            | "Join neighbours" >> beam.CoGroupByKey()
            | "Keep looks with a duplicate" >> beam.FlatMap(_look_alikes).with_output_types(LookAlikes)
            | "Gather" >> beam.combiners.ToList()
            | "Judge" >> beam.FlatMap(judge, self.policy).with_output_types(Duplicate)
        )


def _is_searchable(occurrence: Occurrence) -> bool:
    if occurrence.is_flat:
        Metrics.counter("dedupe", "flat_images").inc()
    return not occurrence.is_flat


def _keyed_by_look(occurrence: Occurrence) -> tuple[str, Occurrence]:
    return occurrence.look, occurrence


def _fingerprint_of(group: tuple[str, Iterable[Occurrence]]) -> Iterator[str]:
    """Yield a look that has a fingerprint (without pixels a look is a content hash, and has no neighbours)."""
    look, occurrences = group
    if next(iter(occurrences)).fingerprint is not None:
        yield look


def _buckets(fingerprints: Sequence[str], *, radius: int) -> Iterator[tuple[str, str]]:
    """Yield `<band>:<key>` and fingerprint, for every fingerprint and band."""
    codes = parse_fingerprints(fingerprints)
    bands = Bands(bits=codes.shape[1] * WORD_BITS, radius=radius)
    permuted = bands.permute(codes)
    for band in range(bands.count):
        for key, fingerprint in zip(bands.keys(permuted, band).tolist(), fingerprints, strict=True):
            yield f"{band}:{key:x}", fingerprint


def _compare(bucket: tuple[str, Iterable[str]], *, radius: int) -> Iterator[tuple[str, Neighbour]]:
    """Yield both directions of every pair that this bucket reports."""
    label, members = bucket
    fingerprints = sorted(members)
    if len(fingerprints) < 2:
        return
    codes = parse_fingerprints(fingerprints)
    bands = Bands(bits=codes.shape[1] * WORD_BITS, radius=radius)
    whole = np.array([[0, len(codes)]])
    band = int(label.partition(":")[0])
    pairs, distances = pairs_in_buckets(bands.permute(codes), whole, bands=bands, band=band)
    for (first, second), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
        yield fingerprints[first], Neighbour(distance, fingerprints[second])
        yield fingerprints[second], Neighbour(distance, fingerprints[first])


def _look_alikes(joined: tuple[str, dict[str, Iterable[Any]]]) -> Iterator[LookAlikes]:
    look, found = joined
    (occurrences,) = found[OCCURRENCES]
    looks = LookAlikes(look, tuple(sorted(occurrences)), tuple(sorted(found[NEIGHBOURS])))
    if looks.has_duplicate:
        yield looks
