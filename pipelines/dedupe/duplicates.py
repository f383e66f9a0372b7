"""Which occurrences are duplicates, of what, and what becomes of their documents (SPEC 3).

From image occurrences to distinct codes, from codes with common keys to neighbours, from these to clusters. A cluster
is a connected component of "is near", named by its smallest image hash: two images of one need not be within the radius
of each other. Plain functions on arrays; `transforms` runs them on partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.hamming import WORD_BITS, key_bits, keys_of, near_rows, rows_by_bucket
from pipelines.documents.rules import SettledDocument
from pipelines.partitions.columns import Bytes, Columns, Numbers, Texts, from_hex, starts_of_runs, to_hex, words_of
from pipelines.settings import Policy
from schemas.duplicates import Duplicate

_FAR = np.iinfo(np.int64).max
C = TypeVar("C", bound="Codes")
Near = Callable[[C], Iterable[tuple[Numbers, Numbers]]]


@dataclass(frozen=True, slots=True)
class Occurrences(Columns):
    """Images of documents.

    Attributes:
        codes: fingerprints; of an image without pixels, which is a duplicate only of itself, its content hash.
        images: content hashes.
        positions: index of the image in its document, from 0.
        documents: ids.
    """

    codes: Bytes
    images: Bytes
    positions: Numbers
    documents: Texts


@dataclass(frozen=True, slots=True)
class Codes(Columns):
    """Distinct codes, the smallest content hash of each, and a key."""

    codes: Bytes
    images: Bytes
    keys: Numbers


@dataclass(frozen=True, slots=True)
class Neighbours(Columns):
    """Codes with another one that is near: their distance, and the other's smallest content hash."""

    codes: Bytes
    distances: Numbers
    images: Bytes


@dataclass(frozen=True, slots=True)
class Clusters(Columns):
    """Codes, the smallest image hash of each, and the smallest known of those that belong with it: its cluster."""

    codes: Bytes
    images: Bytes
    clusters: Bytes


@dataclass(frozen=True, slots=True)
class Duplicates(Columns):
    """Occurrences that have a duplicate: the columns of `schemas.duplicates.Duplicate` but the last.

    Distances are whole numbers, of whatever unit the search has.
    """

    clusters: Bytes
    documents: Texts
    positions: Numbers
    images: Bytes
    nearest: Bytes
    distances: Numbers


def pack_images(documents: Iterable[SettledDocument]) -> Iterator[Occurrences]:
    """Yield the images of some documents, with pixels and without; flat ones, which look all alike, are left out."""
    rows = [
        (image.fingerprint is None, image.fingerprint or image.hash, image.hash, position, settled.document.id)
        for settled in documents
        for position, found in enumerate(settled.images)
        if not (image := found.image).is_flat
    ]
    for _, some in groupby(sorted(rows, key=itemgetter(0)), itemgetter(0)):
        _, codes, hashes, positions, ids = zip(*some, strict=True)
        yield Occurrences(from_hex(codes), from_hex(hashes), np.array(positions), np.array(ids, object))


def keyed_codes(occurrences: Occurrences, *, radius: int, count: int) -> Iterator[Codes]:
    """Yield the distinct fingerprints of some occurrences with one key after the other (`key_bits`)."""
    occurrences = occurrences.take(occurrences.codes != occurrences.images)
    order = np.lexsort((occurrences.images, occurrences.codes))
    order = order[starts_of_runs(occurrences.codes[order])]
    codes, images = occurrences.codes[order], occurrences.images[order]
    words = words_of(codes)
    for bits in key_bits(words.shape[1] * WORD_BITS, radius=radius, count=count):
        yield Codes(codes, images, keys_of(words, bits))


def near_codes(codes: Codes, radius: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield rows of codes with equal keys that are within the radius, and their distances in bits."""
    return near_rows(words_of(codes.codes), codes.keys, radius)


def find_neighbours(codes: C, near: Near[C]) -> tuple[Neighbours, Clusters]:
    """Return the nearest of the neighbours that codes meet by their keys, and the clusters these make.

    Of two that are equally near, the one with the smaller hash is the nearest.

    Args:
        codes: of different images.
        near: gives rows of codes that are near one another and their distances, many at once.
    """
    codes = codes.take(np.argsort(codes.images, kind="stable"))
    count = len(codes)
    nearest, roots = np.full(count, _FAR), np.arange(count)
    for pairs, distances in near(codes):
        np.minimum.at(nearest, pairs[0], distances * count + pairs[1])
        np.minimum.at(nearest, pairs[1], distances * count + pairs[0])
        roots = join(roots, pairs)
    rows = np.flatnonzero(nearest < _FAR)
    found = codes.take(rows)
    distances, others = np.divmod(nearest[rows], max(1, count))
    neighbours = Neighbours(found.codes, distances, codes.images[others])
    return neighbours, Clusters(found.codes, found.images, codes.images[roots[rows]])


def closest(neighbours: Neighbours) -> Neighbours:
    """Return of each code the nearest of its neighbours, sorted by code; of equals, the smallest hash."""
    neighbours = neighbours.take(np.lexsort((neighbours.images, neighbours.distances, neighbours.codes)))
    return neighbours.take(starts_of_runs(neighbours.codes))


def cut_crowded(codes: C, limit: int) -> Iterator[C]:
    """Yield the codes whose buckets have at most `limit`, and cells of the others: tables that any worker may compare.

    A crowded bucket is cut into blocks; each two blocks are a cell:

        4 blocks      01 02 03        6 cells of 2 blocks
                         12 13
                            23
    """
    order, sizes = rows_by_bucket(codes.keys)
    order = order[sizes > limit]
    yield codes.take(np.setdiff1d(np.arange(len(codes)), order))
    for bucket in np.split(order, starts_of_runs(codes.keys[order])[1:]):
        blocks = np.array_split(bucket, -(-2 * len(bucket) // limit) or 1)
        for pair in combinations(blocks, 2):
            yield codes.take(np.concatenate(pair))


def join(roots: Numbers, pairs: Numbers) -> Numbers:
    """Return for each node the smallest node of its connected component, with some more pairs.

    Each round hangs every root that has a smaller neighbour under it, then shortens all paths: the number of roots of
    an unfinished component at least halves, so there are at most log2(nodes) rounds.

    Args:
        roots: N, the smallest node of each node's component so far; itself where there are no pairs yet.
        pairs: 2 x P nodes that belong together.
    """
    while True:
        first, second = roots[pairs]
        if np.array_equal(first, second):
            return roots
        roots = roots.copy()
        np.minimum.at(roots, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(roots, shorter := roots[roots]):
            roots = shorter


def merge_clusters(found: Iterable[Clusters]) -> Clusters:
    """Return each code once, with its cluster, from what parts of the data know of it."""
    parts = Clusters.concatenate(found)
    nodes, rows = np.unique(np.concatenate([parts.images, parts.clusters]), return_inverse=True)
    pairs = rows.reshape(2, -1)
    roots = join(np.arange(len(nodes)), pairs)
    _, once = np.unique(parts.images, return_index=True)
    return Clusters(parts.codes[once], parts.images[once], nodes[roots[pairs[0, once]]])


def find_duplicates(
    occurrences: Occurrences, neighbours: Neighbours, clusters: Clusters, *, of_itself: bool = True
) -> Duplicates:
    """Return the occurrences that have a duplicate, each with the nearest and its cluster.

    The nearest is the image itself where it occurs twice, else the smallest hash among the closest.

    Args:
        occurrences: all of their codes.
        neighbours: of these codes; a code may have several.
        clusters: of these codes that have a neighbour.
        of_itself: whether an image that occurs twice is a duplicate for that alone.
    """
    occurrences = occurrences.take(np.lexsort((occurrences.images, occurrences.codes)))
    of_image = starts_of_runs(occurrences.codes, occurrences.images)
    times = np.diff(of_image, append=len(occurrences))
    images, image_codes = occurrences.images[of_image], occurrences.codes[of_image]
    of_code = starts_of_runs(image_codes)
    alike = np.diff(of_code, append=len(images))  # images that cannot be told apart
    codes, first = image_codes[of_code], images[of_code]
    second = images[np.minimum(of_code + 1, len(images) - 1)]

    neighbours = closest(neighbours)
    rows = np.searchsorted(codes, neighbours.codes)
    distance, other, cluster = np.full(len(codes), -1), first.copy(), first.copy()
    distance[rows], other[rows] = neighbours.distances, neighbours.images
    cluster[np.searchsorted(codes, clusters.codes)] = clusters.clusters

    code = np.repeat(np.arange(len(codes)), alike)
    is_first = images == first[code]
    other = np.where(alike[code] > 1, np.where(is_first, second[code], first[code]), other[code])
    is_again = (times > 1) & of_itself
    other = np.where(is_again, images, other)
    distance = np.where(is_again | (alike[code] > 1), 0, distance[code])
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


def count_duplicates(duplicates: Duplicates, is_dropped: npt.NDArray[np.bool_]) -> dict[str, int]:
    """Return numbers that add up: of `occurrences`, those that are `left`, different `images`, and `clusters`.

    What is left is what several documents that stay show; where nothing is dropped, all are left. Where some documents
    of a cluster go and others stay, it has to be given all of the data set. Equal images have to be given together.
    """
    images = np.unique(duplicates.images)
    clusters = np.isin(images, duplicates.clusters).sum()  # a cluster is named by an image of it
    counts = {"occurrences": len(duplicates), "left": len(duplicates), "images": len(images), "clusters": int(clusters)}
    if is_dropped.any():
        _, document = np.unique(duplicates.documents, return_inverse=True)
        names, cluster = np.unique(duplicates.clusters, return_inverse=True)
        stays = ~np.isin(document, document[is_dropped])
        shown = np.unique(document[stays] * max(1, len(names)) + cluster[stays]) % max(1, len(names))
        counts["left"] = int((np.bincount(shown, minlength=1)[cluster[stays]] > 1).sum())
    return counts


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
