"""Which occurrences are duplicates, of what, and what becomes of their documents (SPEC 3).

Plain functions on arrays; `transforms` runs them on partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.columns import Bytes, Columns, Numbers, Texts, starts_of_runs, to_hex
from pipelines.dedupe.neighbours import Clusters, Neighbours, Occurrences
from pipelines.settings import Policy
from schemas.duplicates import Duplicate


@dataclass(frozen=True, slots=True)
class Duplicates(Columns):
    """Occurrences that have a duplicate: the columns of `schemas.duplicates.Duplicate` but the last."""

    clusters: Bytes
    documents: Texts
    positions: Numbers
    images: Bytes
    nearest: Bytes
    distances: Numbers


def find_duplicates(occurrences: Occurrences, neighbours: Neighbours, clusters: Clusters) -> Duplicates:
    """Return the occurrences that have a duplicate, each with the nearest and its cluster.

    The nearest is the image itself where it occurs twice, else the smallest hash among the closest.

    Args:
        occurrences: all of their codes.
        neighbours: of these codes; a code may have several.
        clusters: of these codes that have a neighbour.
    """
    occurrences = occurrences.take(np.lexsort((occurrences.images, occurrences.codes)))
    of_image = starts_of_runs(occurrences.codes, occurrences.images)
    times = np.diff(of_image, append=len(occurrences))
    images, image_codes = occurrences.images[of_image], occurrences.codes[of_image]
    of_code = starts_of_runs(image_codes)
    alike = np.diff(of_code, append=len(images))  # images that cannot be told apart
    codes, first = image_codes[of_code], images[of_code]
    second = images[np.minimum(of_code + 1, len(images) - 1)]

    neighbours = neighbours.take(np.lexsort((neighbours.images, neighbours.distances, neighbours.codes)))
    neighbours = neighbours.take(starts_of_runs(neighbours.codes))
    rows = np.searchsorted(codes, neighbours.codes)
    distance, other, cluster = np.full(len(codes), -1), first.copy(), first.copy()
    distance[rows], other[rows] = neighbours.distances, neighbours.images
    cluster[np.searchsorted(codes, clusters.codes)] = clusters.clusters

    code = np.repeat(np.arange(len(codes)), alike)
    is_first = images == first[code]
    other = np.where(alike[code] > 1, np.where(is_first, second[code], first[code]), other[code])
    other = np.where(times > 1, images, other)
    distance = np.where((times > 1) | (alike[code] > 1), 0, distance[code])
    image = np.repeat(np.arange(len(images)), times)
    rows = np.flatnonzero(distance[image] >= 0)
    found, image = occurrences.take(rows), image[rows]
    nearest = (other[image], distance[image])
    return Duplicates(cluster[code[image]], found.documents, found.positions, found.images, *nearest)


def mark_dropped(duplicates: Duplicates, policy: Policy) -> npt.NDArray[np.bool_]:
    """Return for which duplicates the policy drops their document; `keep-first` has to be given all of the data set."""
    if policy is Policy.KEEP_FIRST:
        return _all_but_first(duplicates)
    return np.full(len(duplicates), policy is Policy.DROP_DOCUMENTS)


def _all_but_first(duplicates: Duplicates) -> npt.NDArray[np.bool_]:
    """Mark what `keep-first` drops.

    In order of id, a document is kept when all its clusters are still free. A document that shows one cluster twice is
    dropped for it; only a kept document takes its clusters.
    """
    _, document = np.unique(duplicates.documents, return_inverse=True)
    names, cluster = np.unique(duplicates.clusters, return_inverse=True)
    shown, row, times = np.unique(document * len(names) + cluster, return_inverse=True, return_counts=True)
    owners, clusters = np.divmod(shown, max(1, len(names)))
    is_dropped, is_taken = times > 1, np.zeros(len(names), np.bool_)
    for start, end in pairwise([*starts_of_runs(owners).tolist(), len(owners)]):
        is_dropped[start:end] |= is_taken[clusters[start:end]]
        is_taken[clusters[start:end]] |= not is_dropped[start:end].any()
    marks: npt.NDArray[np.bool_] = is_dropped[row]
    return marks


def duplicate_rows(duplicates: Duplicates, is_dropped: npt.NDArray[np.bool_]) -> Iterator[Duplicate]:
    """Yield the rows of the duplicates table."""
    columns = (
        to_hex(duplicates.clusters),
        duplicates.documents.tolist(),
        duplicates.positions.tolist(),
        to_hex(duplicates.images),
        to_hex(duplicates.nearest),
        duplicates.distances.tolist(),
        is_dropped.tolist(),
    )
    for row in zip(*columns, strict=True):
        yield Duplicate(*row)
