"""Near-duplicate images on a cluster: the same answer as `policies.find_duplicates`, with the work split by key.

    occurrences -> looks, summed up -> buckets of equal keys -> cells of bounded size -> pairs
    looks, nearest neighbours, clusters -> verdicts -> every occurrence judged where it is

What is bounded, however skewed the data. Occurrences of one look are added up by a combiner before they travel, and a
million copies of a placeholder are one row. Verdicts meet the occurrences of their look in a group, unless those are
more than `bucket_codes`: such looks are few, and their verdicts come as a side input. A cell holds about 2 x
`bucket_codes` codes: a fuller bucket is cut into blocks by a hash of the code, and each pair of blocks is a cell of its
own.

What is not bounded: a worker holds the size of each crowded bucket, and each repeated image of crowded looks; clusters
are made on one worker, from a node per look with a neighbour (not from the pairs); `keep-first`, an order over
documents, holds on one worker a number per (document with a duplicate, cluster).

This file is wiring: what is done to a cell, a look or an occurrence is in `cells`, `clusters` and `policies`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.dedupe.cells import BUCKET_CODES, Code, NearCodes, cells_of, compare_cell, keys_of
from pipelines.dedupe.clusters import Forest, find_root, join_trees
from pipelines.dedupe.occurrences import Look, Neighbour, Occurrence, Verdict, look_of, merge_looks
from pipelines.dedupe.policies import dropped_but_first, judge_occurrence
from pipelines.settings import Policy
from schemas.duplicates import Duplicate

BATCH = 4096  # fingerprints cut into bands in one go
LOOKS, NEAREST, CLUSTER = "looks", "nearest", "cluster"
PLACES, VERDICT = "places", "verdict"


@dataclass(eq=False)
class FindDuplicates(beam.PTransform):
    """Every occurrence of an image with a near-duplicate, with what the policy does about it.

    Attributes:
        radius: two images are duplicates when their fingerprints differ in at most this many bits.
        policy: what happens to their documents.
        bucket_codes: a bucket with more codes is cut into blocks of about so many; occurrences of one look that may
            be on one worker at once.
    """

    radius: int
    policy: Policy
    bucket_codes: int = BUCKET_CODES

    def expand(self, occurrences: beam.PCollection[Occurrence]) -> beam.PCollection[Duplicate]:
        places = occurrences | "Leave out flat images" >> beam.Filter(_is_searchable)
        looks = (
            places
            | "Key by look" >> beam.Map(_keyed_look).with_output_types(tuple[str, Look])
            | "Sum up looks" >> beam.CombinePerKey(merge_looks).with_output_types(tuple[str, Look])
            | "Looks" >> beam.Values().with_output_types(Look)
        )
        pairs = looks | "Find near looks" >> FindNearLooks(self.radius, self.bucket_codes)
        verdicts = (looks, pairs) | "Judge looks" >> JudgeLooks()
        judged = (places, looks, verdicts) | "Judge occurrences" >> JudgeOccurrences(self.policy, self.bucket_codes)
        return judged | "Keep first" >> KeepFirst() if self.policy is Policy.KEEP_FIRST else judged


@dataclass(eq=False)
class FindNearLooks(beam.PTransform):
    """Every pair of looks within the radius, once: PCollection[Look] to PCollection[NearCodes]."""

    radius: int
    bucket_codes: int

    def expand(self, looks: beam.PCollection[Look]) -> beam.PCollection[NearCodes]:
        keyed = (
            looks
            | "Take codes" >> beam.FlatMap(_code_of).with_output_types(Code)
            | "Batch codes" >> beam.BatchElements(min_batch_size=1, max_batch_size=BATCH)
            | "Cut into keys" >> beam.FlatMap(keys_of, radius=self.radius).with_output_types(tuple[str, Code])
        )
        crowded = (
            keyed
            | "Count codes of a key" >> beam.combiners.Count.PerKey()
            | "Crowded keys" >> beam.Filter(_is_crowded, self.bucket_codes)
        )
        return (
            keyed
            | "Cut buckets into cells"
            >> beam.FlatMap(cells_of, beam.pvalue.AsDict(crowded), self.bucket_codes).with_output_types(
                tuple[str, Code]
            )
            | "Group by cell" >> beam.GroupByKey()
            | "Compare within cells" >> beam.FlatMap(_compare, self.radius).with_output_types(NearCodes)
        )


class JudgeLooks(beam.PTransform):
    """(looks, pairs of near ones) to (look, Verdict) of each that has a duplicate."""

    def expand(self, inputs: tuple[Any, Any]) -> beam.PCollection[tuple[str, Verdict]]:
        looks, pairs = inputs
        nearest = (
            pairs
            | "Both ways" >> beam.FlatMap(_both_ways).with_output_types(tuple[str, Neighbour])
            | "Nearest" >> beam.CombinePerKey(min).with_output_types(tuple[str, Neighbour])
        )
        clusters = (
            pairs
            | "Grow clusters" >> beam.CombineGlobally(_GrowForest())
            | "Clusters" >> beam.FlatMap(_roots).with_output_types(tuple[str, str])
        )
        by_image = looks | "Key by first image" >> beam.Map(_keyed_by_image).with_output_types(tuple[str, Look])
        return (
            {LOOKS: by_image, NEAREST: nearest, CLUSTER: clusters}
            | "Meet neighbours" >> beam.CoGroupByKey()
            | "Keep looks with a duplicate" >> beam.FlatMap(_verdict).with_output_types(tuple[str, Verdict])
        )


@dataclass(eq=False)
class JudgeOccurrences(beam.PTransform):
    """(occurrences, looks, (look, Verdict) of those that have a duplicate) to the duplicates.

    Attributes:
        policy: what happens to their documents.
        bucket_codes: occurrences of one look that may share a group.
    """

    policy: Policy
    bucket_codes: int

    def expand(self, inputs: tuple[Any, Any, Any]) -> beam.PCollection[Duplicate]:
        places, looks, verdicts = inputs
        crowded = beam.pvalue.AsDict(looks | "Crowded looks" >> beam.FlatMap(_crowded_look, self.bucket_codes))
        grouped = (
            {
                PLACES: places | "Key places" >> beam.FlatMap(_place_of_a_few, crowded),
                VERDICT: verdicts | "Verdicts on few" >> beam.Filter(_is_on_few, self.bucket_codes),
            }
            | "Meet verdicts" >> beam.CoGroupByKey()
            | "Judge groups" >> beam.FlatMap(_judge_group, self.policy).with_output_types(Duplicate)
        )
        of_many = places | "Places of crowded looks" >> beam.Filter(_is_of_many, crowded)
        repeated = (
            of_many
            | "Take image" >> beam.Map(_image_of).with_output_types(str)
            | "Count images" >> beam.combiners.Count.PerElement()
            | "Repeated images" >> beam.Filter(_is_repeated)
        )
        on_many = verdicts | "Verdicts on many" >> beam.Filter(_is_on_many, self.bucket_codes)
        judged = of_many | "Judge one by one" >> beam.FlatMap(
            _judge, beam.pvalue.AsDict(on_many), beam.pvalue.AsDict(repeated), self.policy
        ).with_output_types(Duplicate)
        return (grouped, judged) | "Few and many" >> beam.Flatten()


class KeepFirst(beam.PTransform):
    """Duplicates with `is_dropped` as `keep-first` has it."""

    def expand(self, duplicates: beam.PCollection[Duplicate]) -> beam.PCollection[Duplicate]:
        dropped = (
            duplicates
            | "Document and cluster" >> beam.Map(_document_cluster).with_output_types(tuple[str, str])
            | "Count in document" >> beam.combiners.Count.PerElement()
            | "Gather" >> beam.combiners.ToDict()
            | "In order of id" >> beam.FlatMap(dropped_but_first).with_output_types(tuple[str, str])
            | "Key by itself" >> beam.Map(_keyed_by_itself)
        )
        return duplicates | "Mark" >> beam.Map(_mark, beam.pvalue.AsDict(dropped)).with_output_types(Duplicate)


class _GrowForest(beam.CombineFn):
    """Puts the pairs of near looks together into clusters."""

    def create_accumulator(self) -> Forest:
        return {}

    def add_input(self, forest: Forest, near: NearCodes) -> Forest:
        join_trees(forest, near.first, near.second)
        return forest

    def merge_accumulators(self, forests: Iterable[Forest]) -> Forest:
        merged: Forest = {}
        for forest in forests:
            for node, parent in forest.items():
                join_trees(merged, node, parent)
        return merged

    def extract_output(self, forest: Forest) -> Forest:
        return forest


def _is_searchable(occurrence: Occurrence) -> bool:
    if occurrence.is_flat:
        Metrics.counter("dedupe", "flat_images").inc()
    return not occurrence.is_flat


def _keyed_look(occurrence: Occurrence) -> tuple[str, Look]:
    return occurrence.look, look_of(occurrence)


def _keyed_by_image(look: Look) -> tuple[str, Look]:
    return look.first, look


def _image_of(occurrence: Occurrence) -> str:
    return occurrence.image


def _is_repeated(counted: tuple[str, int]) -> bool:
    return counted[1] > 1


def _is_crowded(counted: tuple[str, int], bucket_codes: int) -> bool:
    return counted[1] > bucket_codes


def _code_of(look: Look) -> Iterator[Code]:
    """Yield a look that has a fingerprint (without pixels it has no neighbours)."""
    if look.fingerprint is not None:
        yield Code(look.fingerprint, look.first)


def _compare(cell: tuple[str, Iterable[Code]], radius: int) -> Iterator[NearCodes]:
    label, members = cell
    codes = sorted(members)
    Metrics.distribution("dedupe", "cell_codes").update(len(codes))
    return compare_cell(label, codes, radius=radius)


def _both_ways(near: NearCodes) -> Iterator[tuple[str, Neighbour]]:
    yield near.first, Neighbour(near.distance, near.second)
    yield near.second, Neighbour(near.distance, near.first)


def _roots(forest: Forest) -> Iterator[tuple[str, str]]:
    for node in list(forest):
        yield node, find_root(forest, node)


def _verdict(joined: tuple[str, dict[str, Iterable[Any]]]) -> Iterator[tuple[str, Verdict]]:
    _, found = joined
    (look,) = found[LOOKS]
    nearest, cluster = next(iter(found[NEAREST]), None), next(iter(found[CLUSTER]), look.first)
    if look.times > 1 or nearest is not None:
        yield look.key, Verdict(look, cluster, nearest)


def _judge(
    place: Occurrence, verdicts: Mapping[str, Verdict], repeated: Mapping[str, int], policy: Policy
) -> Iterator[Duplicate]:
    verdict = verdicts.get(place.look)
    if verdict is not None:
        yield judge_occurrence(place, verdict, repeated, policy)


def _crowded_look(look: Look, most: int) -> Iterator[tuple[str, int]]:
    if look.times > most:
        yield look.key, look.times


def _place_of_a_few(place: Occurrence, crowded: Mapping[str, int]) -> Iterator[tuple[str, Occurrence]]:
    if place.look not in crowded:
        yield place.look, place


def _is_of_many(place: Occurrence, crowded: Mapping[str, int]) -> bool:
    return place.look in crowded


def _is_on_many(keyed: tuple[str, Verdict], most: int) -> bool:
    return keyed[1].look.times > most


def _is_on_few(keyed: tuple[str, Verdict], most: int) -> bool:
    return not _is_on_many(keyed, most)


def _judge_group(group: tuple[str, dict[str, Iterable[Any]]], policy: Policy) -> Iterator[Duplicate]:
    """Yield the duplicates of one look: equal images look alike, so that those repeated are seen here."""
    _, found = group
    for verdict in found[VERDICT]:
        places = list(found[PLACES])
        times = Counter(place.image for place in places)
        repeated = {image for image, count in times.items() if count > 1}
        for place in places:
            yield judge_occurrence(place, verdict, repeated, policy)


def _document_cluster(duplicate: Duplicate) -> tuple[str, str]:
    return duplicate.document, duplicate.cluster


def _keyed_by_itself(key: tuple[str, str]) -> tuple[tuple[str, str], None]:
    return key, None


def _mark(duplicate: Duplicate, dropped: Mapping[tuple[str, str], None]) -> Duplicate:
    return replace(duplicate, is_dropped=_document_cluster(duplicate) in dropped)
