"""Images with their vectors, and the rows of the table of near copies.

A cluster is a connected component of "within the cosine", named by its smallest image hash. Two images of one need not
be within the cosine of each other.
Images with equal bytes are one image here: that one occurs twice is `pipelines.dedupe`'s to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from pipelines.copy_detection.vectors import Points, cosines_of, points_of
from pipelines.dedupe.duplicates import Duplicates, Occurrences, duplicate_rows
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import IMAGES, feature_array
from pipelines.partitions.columns import from_hex
from schemas.duplicates import NearCopy
from schemas.features import column_to_vectors


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


def near_copy_rows(found: Duplicates, is_dropped: npt.NDArray[np.bool_]) -> Iterator[NearCopy]:
    """Yield the rows of the table of near copies."""
    cosines = cosines_of(found.distances).tolist()
    for row, cosine in zip(duplicate_rows(found, is_dropped), cosines, strict=True):
        yield NearCopy(row.cluster, row.document, row.position, row.image, row.nearest, cosine, row.is_dropped)
