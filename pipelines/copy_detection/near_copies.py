"""Which images are copies of others by their vectors, in which clusters, and how unlike a cluster's members are.

A cluster is a connected component of "within the cosine", named by its smallest image hash. Two images of one need not
be within the cosine of each other, so that each cluster says its worst pair. Images with equal bytes are one image
here: that one occurs twice is `pipelines.dedupe`'s to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.copy_detection.near_vectors import Vectors, least_pair, near_pairs
from pipelines.dedupe.columns import Bytes, Columns, Numbers, Reals, Texts, from_hex, to_hex
from pipelines.dedupe.duplicates import join
from pipelines.features.extraction import FeaturedDocument
from pipelines.packs import PackRef
from schemas.duplicates import NearCopy


@dataclass(frozen=True, slots=True)
class Shown(Columns):
    """Images of documents, and where their vectors are: a pack and a row."""

    images: Bytes
    positions: Numbers
    documents: Texts
    packs: Texts
    rows: Numbers

    def once(self) -> tuple[Shown, Numbers]:
        """Return each image once, by hash, and of each row which of them it shows."""
        _, first, number = np.unique(self.images, return_index=True, return_inverse=True)
        return self.take(first), number

    def refs(self) -> list[PackRef]:
        return [PackRef(pack, row) for pack, row in zip(self.packs.tolist(), self.rows.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class NearCopies(Columns):
    """Occurrences of images that have a copy: the columns of `schemas.duplicates.NearCopy` but the last."""

    clusters: Bytes
    documents: Texts
    positions: Numbers
    images: Bytes
    nearest: Bytes
    cosines: Reals
    worst: Reals
    worst_first: Bytes
    worst_second: Bytes


def pack_shown(documents: Iterable[FeaturedDocument], column: int) -> Iterator[Shown]:
    """Yield the images of some documents with the place of their vector in one column; flat ones are left out."""
    rows = [
        (each.packed.image.hash, position, featured.document.id, each.features[column])
        for featured in documents
        for position, each in enumerate(featured.images)
        if not each.packed.image.is_flat
    ]
    if rows:
        images, positions, ids, refs = zip(*rows, strict=True)
        packs, numbers = [ref.pack for ref in refs], [ref.row for ref in refs]
        yield Shown(
            from_hex(images), np.array(positions), np.array(ids, object), np.array(packs, object), np.array(numbers)
        )


def find_near_copies(shown: Shown, vectors: Vectors, cosine: float) -> NearCopies:
    """Return the occurrences of images that have a copy.

    Args:
        shown: all images of all documents.
        vectors: of `shown.once()`, in its order.
        cosine: two images are copies from it on.
    """
    once, number = shown.once()
    pairs, cosines = near_pairs(vectors, cosine)
    roots = join(np.arange(len(once)), pairs)
    nearest, best = _nearest(pairs, cosines, len(once))
    worst, ends = np.ones(len(once)), np.zeros((2, len(once)), np.int64)
    members = np.flatnonzero(nearest >= 0)
    for root in np.unique(roots[members]):
        some = members[roots[members] == root]
        first, second, least = least_pair(vectors[some])
        worst[some], ends[:, some] = least, some[[first, second]][:, None]
    rows = np.flatnonzero(nearest[number] >= 0)
    found, image = shown.take(rows), number[rows]
    hashes = once.images
    return NearCopies(
        hashes[roots[image]],
        found.documents,
        found.positions,
        found.images,
        hashes[nearest[image]],
        best[image],
        worst[image],
        hashes[ends[0, image]],
        hashes[ends[1, image]],
    )


def near_copy_rows(found: NearCopies, is_dropped: Iterable[bool]) -> Iterator[NearCopy]:
    """Yield the rows of the table of near copies."""
    columns = (
        to_hex(found.clusters),
        found.documents.tolist(),
        found.positions.tolist(),
        to_hex(found.images),
        to_hex(found.nearest),
        found.cosines.tolist(),
        found.worst.tolist(),
        to_hex(found.worst_first),
        to_hex(found.worst_second),
        is_dropped,
    )
    for row in zip(*columns, strict=True):
        yield NearCopy(*row)


def _nearest(pairs: Numbers, cosines: Reals, count: int) -> tuple[Numbers, Reals]:
    """Return of each image the most similar one (of equals, the smaller hash; -1: none), and their cosine."""
    ends, others = np.concatenate([pairs, pairs[::-1]], axis=1)
    both = np.tile(cosines, 2)
    order = np.lexsort((others, -both, ends))
    rows, first = np.unique(ends[order], return_index=True)
    nearest, best = np.full(count, -1), np.zeros(count)
    nearest[rows], best[rows] = others[order[first]], both[order[first]]
    return nearest, best
