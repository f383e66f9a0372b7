"""Images with their vectors, and the rows of the table of near copies.

A cluster is a connected component of "within the cosine", named by its smallest image hash. Two images of one need not
be within the cosine of each other, so that each cluster says its worst pair, of its first LOOKED_AT images by hash.
Images with equal bytes are one image here: that one occurs twice is `pipelines.dedupe`'s to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.copy_detection.vectors import Points, cosines_of, least_pair, points_of
from pipelines.dedupe.columns import from_hex, starts_of_runs, to_hex
from pipelines.dedupe.duplicates import Duplicates, Occurrences, duplicate_rows
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import IMAGES, feature_array, feature_packs
from pipelines.packs import present
from schemas.duplicates import NearCopy
from schemas.features import FeatureColumn, column_to_vectors
from schemas.lake import Lake

LOOKED_AT = 64  # images of a cluster among which the worst pair is sought
_CLUSTERS_AT_ONCE = 64
Worst = Mapping[str, tuple[str, str, float]]  # of each cluster, two images and their cosine


def pack_shown(documents: Iterable[FeaturedDocument]) -> Iterator[Occurrences]:
    """Yield the images of some documents; the code of an image is its hash."""
    rows = [(each.packed.image.hash, position, name) for name, position, each in _shown(documents)]
    if rows:
        hashes, positions, ids = zip(*rows, strict=True)
        images = from_hex(hashes)
        yield Occurrences(images, images, np.array(positions), np.array(ids, object))


def pack_points(documents: Iterable[FeaturedDocument], plan: FeaturePlan, extractor: str) -> Iterator[Points]:
    """Yield the images of some documents with their vectors, each once."""
    columns = plan.extracted(IMAGES)
    number = [column.name for column in columns].index(extractor)
    refs = {each.packed.image.hash: each.features[number] for _, _, each in _shown(documents)}
    if refs:
        vectors = column_to_vectors(feature_array(plan.lake, columns[number], IMAGES, [*refs.values()]))
        yield points_of(from_hex([*refs]), vectors)


def _shown(documents: Iterable[FeaturedDocument]) -> Iterator[tuple[str, int, FeaturedImage]]:
    for featured in documents:
        for position, each in enumerate(featured.images):
            if not each.packed.image.is_flat:
                yield featured.document.id, position, each


def worst_pairs(found: Duplicates, lake: Lake, column: FeatureColumn) -> Worst:
    """Return of whole clusters the two images that are least alike."""
    order = np.lexsort((found.images, found.clusters))
    order = order[starts_of_runs(found.clusters[order], found.images[order])]
    members = [rows[:LOOKED_AT] for rows in np.split(order, starts_of_runs(found.clusters[order])[1:]) if len(rows)]
    index, worst = feature_packs(lake, column, IMAGES).index(), dict[str, tuple[str, str, float]]()
    for start in range(0, len(members), _CLUSTERS_AT_ONCE):
        some = members[start : start + _CLUSTERS_AT_ONCE]
        hashes, edges = to_hex(found.images[np.concatenate(some)]), np.cumsum([0, *map(len, some)])
        names = to_hex(found.clusters[[rows[0] for rows in some]])
        refs = present(index.find(hashes), hashes)
        vectors = column_to_vectors(feature_array(lake, column, IMAGES, refs))
        for cluster, begin, end in zip(names, edges, edges[1:], strict=False):
            first, second, cosine = least_pair(vectors[begin:end])
            worst[cluster] = (hashes[begin + first], hashes[begin + second], cosine)
    return worst


def near_copy_rows(found: Duplicates, is_dropped: npt.NDArray[np.bool_], worst: Worst) -> Iterator[NearCopy]:
    """Yield the rows of the table of near copies."""
    cosines = cosines_of(found.distances).tolist()
    for row, cosine in zip(duplicate_rows(found, is_dropped), cosines, strict=True):
        first, second, least = worst[row.cluster]
        yield NearCopy(
            row.cluster,
            row.document,
            row.position,
            row.image,
            row.nearest,
            cosine,
            least,
            first,
            second,
            row.is_dropped,
        )


def count_copies(found: Duplicates, worst: Worst) -> dict[str, Any]:
    """Return how many clusters and images there are, and the least cosine within a cluster."""
    least = min((cosine for _, _, cosine in worst.values()), default=None)
    return {"clusters": len(worst), "images": len(set(found.images.tolist())), "worst": least}


def add_counts(counts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what `count_copies` gave for parts of the clusters as one."""
    parts = list(counts)
    least = min((part["worst"] for part in parts if part["worst"] is not None), default=None)
    return {name: sum(part[name] for part in parts) for name in ("clusters", "images")} | {"worst": least}
