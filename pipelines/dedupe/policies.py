"""What becomes of documents with near-duplicate images (SPEC 3): the plain path, and the rules both paths share.

`find_duplicates` goes from occurrences to duplicates in one process; `transforms.FindDuplicates` does the same on a
cluster and ends in the same `judge`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipelines.config import Policy
from pipelines.dedupe.clusters import components
from pipelines.dedupe.hamming import near_pairs, parse_fingerprints
from pipelines.dedupe.occurrences import LookAlikes, Neighbour, Occurrence, group_by_look, searchable
from schemas.duplicates import Duplicate


def find_duplicates(occurrences: Iterable[Occurrence], *, radius: int, policy: Policy) -> list[Duplicate]:
    """Return every occurrence that has a near-duplicate, sorted, with what the policy does about it.

    An image that occurs twice, in two documents or in one, is its own duplicate at distance 0. Flat images are left
    out. `dropped_documents` gives the documents to drop.
    """
    groups = group_by_look(searchable(occurrences))
    neighbours = _neighbours([look for look, group in groups.items() if group[0].fingerprint is not None], radius)
    alike = [LookAlikes(look, tuple(sorted(group)), tuple(sorted(neighbours[look]))) for look, group in groups.items()]
    return judge([looks for looks in alike if looks.has_duplicate], policy)


def dropped_documents(duplicates: Iterable[Duplicate]) -> frozenset[str]:
    """Return the ids of the documents that the policy dropped."""
    return frozenset(duplicate.document for duplicate in duplicates if duplicate.is_dropped)


def judge(alike: Sequence[LookAlikes], policy: Policy) -> list[Duplicate]:
    """Return the duplicates of all looks that have one, in sorted order.

    Args:
        alike: each look with a duplicate, once; a neighbour names another of them.
        policy: what is dropped.
    """
    by_look = {looks.look: looks for looks in sorted(alike, key=_look_of)}
    first_image = {look: min(o.image for o in looks.occurrences) for look, looks in by_look.items()}
    cluster = _clusters(by_look, first_image)
    dropped = _dropped([(o.document, cluster[looks.look]) for looks in alike for o in looks.occurrences], policy)
    duplicates: list[Duplicate] = []
    for look, looks in by_look.items():
        name, nearest = cluster[look], _nearest(looks, first_image)
        for o in looks.occurrences:
            image, distance = nearest[o.image]
            is_dropped = (o.document, name) in dropped
            duplicates.append(Duplicate(name, o.document, o.position, o.image, image, distance, is_dropped))
    return sorted(duplicates)


def _neighbours(looks: Sequence[str], radius: int) -> defaultdict[str, list[Neighbour]]:
    """Return for each fingerprint those within the radius."""
    found: defaultdict[str, list[Neighbour]] = defaultdict(list)
    near = near_pairs(parse_fingerprints(looks), radius)
    look_of = dict(zip(near.group.tolist(), looks, strict=True))
    for (first, second), distance in zip(near.pairs.tolist(), near.distances.tolist(), strict=True):
        found[look_of[first]].append(Neighbour(distance, look_of[second]))
        found[look_of[second]].append(Neighbour(distance, look_of[first]))
    return found


def _look_of(looks: LookAlikes) -> str:
    return looks.look


def _clusters(by_look: Mapping[str, LookAlikes], first_image: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster of each look: the smallest image hash of its connected component."""
    looks = sorted(by_look, key=first_image.__getitem__)  # the first of a component then has its smallest hash
    place = {look: index for index, look in enumerate(looks)}
    pairs = [(place[look], place[n.look]) for look in looks for n in by_look[look].neighbours]
    roots = components(len(looks), np.asarray(pairs, np.int64).reshape(-1, 2))
    return {look: first_image[looks[root]] for look, root in zip(looks, roots.tolist(), strict=True)}


def _nearest(looks: LookAlikes, first_image: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return for each image of one look its closest other member and the distance.

    That is the image itself where it occurs twice, else the smallest hash among the closest.
    """
    times = Counter(o.image for o in looks.occurrences)
    smallest = sorted(times)[:2]
    if len(looks.occurrences) == 1:
        distance, image = min((n.distance, first_image[n.look]) for n in looks.neighbours)
        return {smallest[0]: (image, distance)}
    return {
        image: (image if count > 1 else smallest[0] if image != smallest[0] else smallest[1], 0)
        for image, count in times.items()
    }


def _dropped(members: Iterable[tuple[str, str]], policy: Policy) -> set[tuple[str, str]]:
    """Return (document, cluster) wherever a cluster is why a document is dropped.

    Args:
        members: document and cluster of each occurrence.
        policy: what is dropped.
    """
    if policy is Policy.KEEP_ALL:
        return set()
    if policy is Policy.DROP_DOCUMENTS:
        return set(members)
    clusters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for document, name in members:
        clusters[document][name] += 1
    return _dropped_but_first(clusters)


def _dropped_but_first(clusters: Mapping[str, Counter[str]]) -> set[tuple[str, str]]:
    """Return the same for `keep-first`: in order of id, a document is kept when all its clusters are still free.

    A document that shows one cluster twice is dropped for it; only a kept document takes its clusters.
    """
    taken: set[str] = set()
    dropped: set[tuple[str, str]] = set()
    for document in sorted(clusters):
        times = clusters[document]
        faults = {name for name in times if name in taken or times[name] > 1}
        dropped |= {(document, name) for name in faults}
        if not faults:
            taken |= set(times)
    return dropped
