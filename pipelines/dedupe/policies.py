"""What becomes of documents with near-duplicate images (SPEC 3): the plain path, and the rules both paths share.

`find_duplicates` goes from occurrences to duplicates in one process; `transforms.FindDuplicates` does the same on a
cluster with the same `judge_occurrence` and `dropped_but_first`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipelines.dedupe.clusters import components
from pipelines.dedupe.hamming import near_pairs, parse_fingerprints
from pipelines.dedupe.occurrences import Look, Neighbour, Occurrence, Verdict, look_of, merge_looks
from pipelines.settings import Policy
from schemas.duplicates import Duplicate


def find_duplicates(occurrences: Iterable[Occurrence], *, radius: int, policy: Policy) -> list[Duplicate]:
    """Return every occurrence that has a near-duplicate, sorted, with what the policy does about it.

    An image that occurs twice, in two documents or in one, is its own duplicate at distance 0. Flat images are left
    out. `dropped_documents` gives the documents to drop.
    """
    places = [occurrence for occurrence in occurrences if not occurrence.is_flat]
    verdicts = _judge_looks(_sum_up(places), radius)
    times = Counter(place.image for place in places)
    repeated = {image for image, count in times.items() if count > 1}
    found = [
        judge_occurrence(place, verdicts[place.look], repeated, policy) for place in places if place.look in verdicts
    ]
    if policy is Policy.KEEP_FIRST:
        dropped = dropped_but_first(Counter((duplicate.document, duplicate.cluster) for duplicate in found))
        found = [replace(d, is_dropped=(d.document, d.cluster) in dropped) for d in found]
    return sorted(found)


def dropped_documents(duplicates: Iterable[Duplicate]) -> frozenset[str]:
    """Return the ids of the documents that the policy dropped."""
    return frozenset(duplicate.document for duplicate in duplicates if duplicate.is_dropped)


def judge_occurrence(place: Occurrence, verdict: Verdict, repeated: Container[str], policy: Policy) -> Duplicate:
    """Return the duplicate that an occurrence is; `keep-first` decides later whether it is dropped.

    Its nearest other member is the image itself where it occurs twice, else the smallest hash among the closest.

    Args:
        place: which occurrence.
        verdict: of its look.
        repeated: images that occur more than once.
        policy: what is dropped.
    """
    nearest = _nearest(place.image, verdict, is_repeated=place.image in repeated)
    is_dropped = policy is Policy.DROP_DOCUMENTS
    return Duplicate(
        verdict.cluster, place.document, place.position, place.image, nearest.image, nearest.distance, is_dropped
    )


def dropped_but_first(times: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Return the (document, cluster) for which `keep-first` drops a document.

    In order of id, a document is kept when all its clusters are still free. A document that shows one cluster twice is
    dropped for it; only a kept document takes its clusters.

    Args:
        times: how often a document shows a cluster.
    """
    clusters: defaultdict[str, list[str]] = defaultdict(list)
    for document, cluster in times:
        clusters[document].append(cluster)
    taken: set[str] = set()
    dropped: set[tuple[str, str]] = set()
    for document in sorted(clusters):
        faults = {(document, c) for c in clusters[document] if c in taken or times[document, c] > 1}
        dropped |= faults
        if not faults:
            taken.update(clusters[document])
    return dropped


def _sum_up(places: Iterable[Occurrence]) -> list[tuple[str, Look]]:
    parts: defaultdict[str, list[Look]] = defaultdict(list)
    for place in places:
        parts[place.look].append(look_of(place))
    return [(key, merge_looks(looks)) for key, looks in parts.items()]


def _judge_looks(looks: Sequence[tuple[str, Look]], radius: int) -> dict[str, Verdict]:
    """Return the verdict of each look that has a duplicate.

    The first of a component is the one with its smallest image hash: that names the cluster.
    """
    ordered = sorted(looks, key=_first_image)
    searched = [index for index, (_, look) in enumerate(ordered) if look.fingerprint is not None]
    near = near_pairs(parse_fingerprints([ordered[index][0] for index in searched]), radius)
    place = np.empty(len(near.codes), np.int64)
    place[near.group] = searched
    pairs = place[near.pairs]
    roots = components(len(ordered), pairs).tolist()
    nearest: dict[int, Neighbour] = {}
    for (first, second), distance in zip(pairs.tolist(), near.distances.tolist(), strict=True):
        for one, other in ((first, second), (second, first)):
            neighbour = Neighbour(distance, ordered[other][1].first)
            nearest[one] = min(neighbour, nearest.get(one, neighbour))
    return {
        key: Verdict(look, ordered[roots[index]][1].first, nearest.get(index))
        for index, (key, look) in enumerate(ordered)
        if look.times > 1 or index in nearest
    }


def _first_image(keyed: tuple[str, Look]) -> str:
    return keyed[1].first


def _nearest(image: str, verdict: Verdict, *, is_repeated: bool) -> Neighbour:
    if is_repeated:
        return Neighbour(0, image)
    other = verdict.look.second if image == verdict.look.first else verdict.look.first
    if other is not None:
        return Neighbour(0, other)
    if verdict.nearest is None:
        raise ValueError(f"look of image {image}: expected another occurrence or a neighbour, found none")
    return verdict.nearest
