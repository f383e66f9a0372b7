"""Images that documents of several splits share, the same or near: they are in one cluster of near-duplicates.

Plain functions on arrays; `transforms` runs them on partitions of the clusters. Flat images, which all look alike, are
in no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.dedupe.columns import Bytes, Columns, Numbers, Texts, from_hex, starts_of_runs, to_hex, words_of
from pipelines.dedupe.duplicates import pack_images
from pipelines.dedupe.hamming import near_pairs
from pipelines.documents.settle import SettledDocument
from pipelines.splits.shared_items import KINDS, SPLITS, Items, leaks_of_items
from schemas.duplicates import Duplicate, Leak, LeakKind

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class ShownImages(Columns):
    """Images of documents that have splits (numbers of `SPLITS`); images without pixels have their hash as code."""

    codes: Bytes
    images: Bytes
    clusters: Bytes
    documents: Texts
    splits: Numbers


@dataclass(frozen=True, slots=True)
class ClusterOfImage(Columns):
    """Images that have a duplicate, and their clusters."""

    images: Bytes
    clusters: Bytes


def pack_shown(documents: Sequence[SettledDocument]) -> Iterator[ShownImages]:
    """Yield the images of some documents; each is a cluster of its own until it meets its cluster."""
    splits = {settled.document.id: settled.document.split for settled in documents}
    for found in pack_images(documents):
        numbers = np.array([SPLITS.index(splits[document]) for document in found.documents])
        yield ShownImages(found.codes, found.images, found.images, found.documents, numbers)


def pack_clusters(duplicates: Sequence[Duplicate]) -> Iterator[ClusterOfImage]:
    """Yield the cluster of each image of some duplicates."""
    clusters = {duplicate.image: duplicate.cluster for duplicate in duplicates}
    yield ClusterOfImage(from_hex(list(clusters)), from_hex(list(clusters.values())))


def meet_clusters(shown: ShownImages, known: ClusterOfImage) -> ShownImages:
    """Return the images that are in a cluster, with it."""
    images, rows = np.unique(known.images, return_index=True)
    shown = shown.take(np.isin(shown.images, images))
    return replace(shown, clusters=known.clusters[rows[np.searchsorted(images, shown.images)]])


def leaks_of_images(shown: ShownImages, radius: int) -> Iterator[Leak]:
    """Yield the leaks among the images of some clusters: of equal bytes, and near ones of other bytes."""
    _, document = np.unique(shown.documents, return_inverse=True)
    order = np.lexsort((document, shown.images))
    shown = shown.take(order[starts_of_runs(shown.images[order], document[order])])  # an image once a document
    kinds = np.full(len(shown), KINDS.index(LeakKind.EXACT_IMAGE))
    keys = np.array(to_hex(shown.images), object)
    yield from leaks_of_items(Items(shown.images, kinds, shown.splits, shown.documents, keys, np.zeros_like(kinds)))
    yield from _near_leaks(shown.take(shown.codes != shown.images), radius)


def _near_leaks(shown: ShownImages, radius: int) -> Iterator[Leak]:
    """Yield for each image of a document the closest other image of each other split, if it is within the radius.

    Args:
        shown: in the order of images, then documents.
        radius: in bits.
    """
    codes, code = np.unique(shown.codes, return_inverse=True)
    pairs, distances = near_pairs(words_of(codes), radius)
    itself = np.arange(len(codes))
    here, there = np.concatenate([pairs, pairs[::-1], [itself, itself]], axis=1)
    distances = np.concatenate([distances, distances, 0 * itself])
    for other, split in enumerate(SPLITS):
        rows = np.flatnonzero(shown.splits == other)
        first = rows[starts_of_runs(shown.images[rows])]  # each image of the split, in its first document
        of_code = _two_smallest(code[first], first, len(codes))[:, there]
        ranks = np.where(of_code < _FAR, distances * len(shown) + of_code, _FAR)
        nearest = _two_smallest(np.tile(here, 2), ranks.reshape(-1), len(codes))[:, code]
        is_itself = shown.images[nearest[0] % len(shown)] == shown.images if len(shown) else np.empty(0, np.bool_)
        closest = np.where(is_itself, nearest[1], nearest[0])
        ends = np.flatnonzero((closest < _FAR) & (shown.splits != other))
        distance, found = np.divmod(closest[ends], max(1, len(shown)))
        one, two = shown.take(ends), shown.take(found)
        hashes = to_hex(one.images), to_hex(two.images)
        for row in zip(one.splits, hashes[0], one.documents, two.documents, hashes[1], distance.tolist(), strict=True):
            yield Leak(LeakKind.NEAR_IMAGE, SPLITS[row[0]], split, *row[1:])


def _two_smallest(groups: Numbers, values: Numbers, count: int) -> Numbers:
    """Return 2 x `count`: the smallest and the next value of each group, `_FAR` where there is none."""
    smallest, second = np.full((2, count), _FAR)
    np.minimum.at(smallest, groups, values)
    rows = np.flatnonzero(values != smallest[groups])
    np.minimum.at(second, groups[rows], values[rows])
    return np.stack([smallest, second])
