"""Which images of a version were seen before, in versions that its settings name.

An image was seen where an earlier version has one of the same bytes; else where it has one whose vector, by the same
extractor, is within the cosine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.copy_detection.vectors import Points, cosines_of, points_of
from pipelines.dedupe.columns import from_hex, to_hex
from pipelines.dedupe.duplicates import Codes, Neighbours, Occurrences, closest
from schemas.duplicates import SeenImage
from schemas.features import FeatureColumn, column_to_vectors
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.parts import read_part


@dataclass(frozen=True, slots=True, order=True)
class SeenCount:
    """Of a version's different images: how many an earlier one has with the same bytes, and how many as copies.

    Attributes:
        version: the earlier one, NAME@VERSION.
        copies: None where it has no vectors of the same extractor.
    """

    version: str
    images: int
    same: int
    copies: int | None


def read_known(entry: FileEntry, folder: Folder, column: FeatureColumn | None) -> Iterator[Points]:
    """Yield the images of a part of a version, with their vectors in a column, if one is given."""
    table = read_part(folder, entry, ["hash", *([] if column is None else [column.column])])
    if len(table):
        vectors = np.zeros((len(table), 1)) if column is None else column_to_vectors(table[column.column])
        yield points_of(from_hex(table["hash"].to_pylist()), vectors)


def find_seen(
    version: str, images: Occurrences, known: Codes, neighbours: Neighbours, has_vectors: bool
) -> Iterator[SeenImage | SeenCount]:
    """Yield a row for each of some images that a version has, then their count."""
    hashes = np.unique(images.codes)
    is_same = np.isin(hashes, known.codes)
    yield from (SeenImage(image, version, image, 1.0) for image in to_hex(hashes[is_same]))
    near = closest(neighbours)
    near = near.take(np.isin(near.codes, hashes[~is_same]))
    pairs = zip(to_hex(near.codes), to_hex(near.images), cosines_of(near.distances).tolist(), strict=True)
    yield from (SeenImage(image, version, seen, cosine) for image, seen, cosine in pairs)
    yield SeenCount(version, len(hashes), int(is_same.sum()), len(near) if has_vectors else None)


def add_seen(counts: Iterable[SeenCount], version: str, has_vectors: bool) -> SeenCount:
    """Return counts of parts of the images as one."""
    parts = list(counts)
    copies = sum(part.copies or 0 for part in parts) if has_vectors else None
    return SeenCount(version, sum(part.images for part in parts), sum(part.same for part in parts), copies)


def seen_lines(counts: Sequence[SeenCount]) -> list[str]:
    """Return in words how many images were seen before."""
    return [
        f"seen before in {each.version}: {each.same} of {each.images} images with the same bytes, "
        + ("copies not known" if each.copies is None else f"{each.copies} as copies")
        for each in counts
    ]
