"""Which images are near one another by their vectors: cells of candidates, and the cosines that decide.

A cell is named by an image of a sample. Each image lies in the cell nearest to it, and is compared with the images of
the PROBES cells that are nearest to it:

    image   cell 12, its own    cells 7, 40, 3, ...
            as a base           as a query              a pair is a query and a base, or two bases, of one cell

Up to EXACT_BELOW images there is one cell. Above it a few pairs may be missed: 1% of the pairs with a cosine of 0.75
and more (`benchmarks/copy_detection.py`). Which are, does not depend on the machine: cells are found by products of
whole numbers, which every processor adds up to the same sum. The cosines that decide are measured in float64 and
rounded to six places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.duplicates import Codes, Duplicates, Occurrences, duplicate_rows
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import IMAGES, feature_array, unit_length
from pipelines.partitions.columns import Bytes, Numbers, from_hex, starts_of_runs, words_of
from schemas.duplicates import NearCopy
from schemas.features import column_to_vectors

EXACT_BELOW = 50_000  # images
PROBES = 8
CROWDED = 8192  # images of a cell that one worker compares: 20 MB of vectors
PLACES = 6  # of a cosine; a distance is 1 - cosine in units of the last one
_ROWS_AT_ONCE = 256
_SLACK = 1e-4  # what a cosine in float32 may lack
_GRID = 4000  # its square is below 2^24: sums of products of vectors of this length are exact in float32
_WORD = 4  # values of float16: the columns of bytes are whole words
Vectors = npt.NDArray[np.floating]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Points(Codes):
    """Images with keys, which are cells; codes are content hashes.

    Attributes:
        vectors: in float16, as bytes.
        bases: 1 where it is the image's own cell, else 0.
    """

    vectors: Bytes
    bases: Numbers

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Return the rows of all parts, each image once in a cell, a base before a query."""
        every = super(Points, cls).concatenate(parts)
        every = every.take(np.lexsort((-every.bases, every.images, every.keys)))
        return every.take(starts_of_runs(every.keys, every.images))


def points_of(images: Bytes, vectors: Vectors) -> Points:
    """Return different images with their vectors, N x d, each a base of the one cell there is so far."""
    padded = np.zeros((len(vectors), -(-vectors.shape[1] // _WORD) * _WORD), np.float16)
    padded[:, : vectors.shape[1]] = vectors
    octets = padded.view(f"S{2 * padded.shape[1]}").reshape(-1)
    _, once = np.unique(images, return_index=True)
    zeros = np.zeros(len(once), np.int64)
    return Points(images[once], images[once], zeros, octets[once], zeros + 1)


def matrix_of(vectors: Bytes) -> Float64:
    """Return vectors as the rows of a matrix."""
    values = np.frombuffer(vectors.tobytes(), np.float16).astype(np.float64)
    return values.reshape(len(vectors), vectors.itemsize // 2)


def sample(points: Points, share: float) -> Points:
    """Return the points whose hash is among the smallest of all hashes there may be, about this share of them."""
    return points.take(words_of(points.images)[:, 0] < share * 2.0**64)


def centres_of(points: Points) -> npt.NDArray[np.float32]:
    """Return the centres of cells, whole numbers: the vectors of different images, by hash."""
    _, once = np.unique(points.images, return_index=True)
    return _on_grid(points.take(once))


def in_cells(points: Points, centres: npt.NDArray[np.float32]) -> Points:
    """Return points in their cells: in the nearest as bases, in the PROBES nearest as queries."""
    if not len(centres):
        return points
    cells = np.argsort(-(_on_grid(points) @ centres.T), axis=1, kind="stable")[:, :PROBES]
    found = points.take(np.repeat(np.arange(len(points)), cells.shape[1]))
    is_base = np.tile(np.arange(cells.shape[1]) == 0, len(points)).astype(np.int64)
    return replace(found, keys=cells.reshape(-1), bases=is_base)


def _on_grid(points: Points) -> npt.NDArray[np.float32]:
    return np.rint(_GRID * unit_length(matrix_of(points.vectors))).astype(np.float32)


def near_points(points: Points, cosine: float) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield rows of points with equal keys from a cosine on, and their distances, some rows of a matrix at once.

    Args:
        points: of each key different images.
        cosine: least.
    """
    order = np.lexsort((-points.bases, points.keys))
    for rows in np.split(order, starts_of_runs(points.keys[order])[1:]):
        unit, bases = unit_length(matrix_of(points.vectors[rows])), int(points.bases[rows].sum())
        short = unit.astype(np.float32)
        blocks = [(row, min(row + _ROWS_AT_ONCE, bases), row) for row in range(0, bases, _ROWS_AT_ONCE)]
        blocks += [(row, row + _ROWS_AT_ONCE, 0) for row in range(bases, len(rows), _ROWS_AT_ONCE)]
        for start, end, first in blocks:
            may_be = short[start:end] @ short[first:bases].T >= cosine - _SLACK
            some = np.flatnonzero(may_be.any(axis=0)) + first
            cosines = np.round(unit[start:end] @ unit[some].T, PLACES)
            left, right = np.nonzero((cosines >= cosine) & (np.arange(start, start + len(cosines))[:, None] != some))
            yield rows[[left + start, some[right]]], distances_of(cosines[left, right])


def distances_of(cosines: Float64) -> Numbers:
    return np.asarray(np.rint((1 - cosines) * 10**PLACES), np.int64)


def cosines_of(distances: Numbers) -> Float64:
    return np.asarray(np.round(1 - distances / 10**PLACES, PLACES))


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
    for row, cosine in zip(duplicate_rows(found, is_dropped), cosines_of(found.distances).tolist(), strict=True):
        yield NearCopy(row.cluster, row.document, row.position, row.image, row.nearest, cosine, row.is_dropped)
