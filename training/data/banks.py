"""Regions and classes of a bank's images, from the tables of the parts they are in.

Which tables and columns is `reading.py`'s to say. An image may be in several parts: its first row counts, so that a
bank's order is that of the image vectors'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas.errors import IntegrityError
from schemas.features import ClassArrays, FeatureColumn, column_to_classes, column_to_regions
from training.data.documents import ClassBank, Int64, RegionBank


def region_bank(tables: Iterable[pa.Table], column: FeatureColumn, *, must_be_finite: bool = True) -> RegionBank:
    """Return the regions of every different image of some images tables (columns `hash` and the regions).

    Raises:
        IntegrityError: a value is not finite, unless that is the caller's to find.
    """
    parts = [column_to_regions(chunk) for chunk in _first_rows(tables, column.column)]
    if must_be_finite and not all(np.isfinite(part.vectors).all() for part in parts):
        raise IntegrityError(f"{column.column}: a region's vector has values that are not finite")
    return RegionBank(
        offsets=_joined_offsets([part.offsets for part in parts]),
        labels=tuple(label for part in parts for label in part.labels),
        vectors=np.concatenate([np.zeros((0, column.dimensions), np.float16), *(part.vectors for part in parts)]),
        boxes=np.concatenate([np.zeros((0, 4), np.float32), *(part.boxes for part in parts)]),
        scores=np.concatenate([np.zeros(0, np.float32), *(part.scores for part in parts)]),
    )


def class_bank(tables: Iterable[pa.Table], column: FeatureColumn) -> ClassBank:
    """Return the classes of every different image of some images tables; K is the longest list's length."""
    parts = [column_to_classes(chunk) for chunk in _first_rows(tables, column.column)]
    lists = [pair for part in parts for pair in _lists(part)]
    widest = max((len(labels) for labels, _ in lists), default=0)
    probabilities = np.zeros((len(lists), widest), np.float32)
    for row, (labels, values) in enumerate(lists):
        probabilities[row, : len(labels)] = values
    padded = tuple((*labels, *[""] * (widest - len(labels))) for labels, _ in lists)
    return ClassBank(labels=padded, probabilities=probabilities)


def _first_rows(tables: Iterable[pa.Table], column: str) -> Iterator[pa.ChunkedArray]:
    """Yield, a table, the column's values of the images that no table before it had."""
    seen: set[str] = set()
    for table in tables:
        hashes = table.column("hash").to_pylist()
        fresh = [place for place, key in enumerate(hashes) if key not in seen]
        seen.update(hashes)
        values = table.column(column)
        yield values if len(fresh) == len(hashes) else values.take(pa.array(fresh, pa.int64()))


def _lists(part: ClassArrays) -> Iterator[tuple[Sequence[str], np.ndarray]]:
    for start, stop in zip(part.offsets[:-1], part.offsets[1:], strict=True):
        yield part.labels[start:stop], part.probabilities[start:stop]


def _joined_offsets(offsets: Sequence[Int64]) -> Int64:
    counts = [np.diff(part) for part in offsets]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]), dtype=np.int64)
