"""How long the vectors of a feature column are, part by part: what a build notes in its manifest, and checks read.

Numbers are rounded to six digits, so that a build on another kind of processor notes the same.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import IntegrityError
from schemas.features import FeatureKind, column_to_vectors
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.tables import FEATURE_PREFIX

NOTE = "vectors"  # of a manifest
TABLES = ("documents", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRange:
    """Vectors of a column.

    Attributes:
        count: how many there are.
        not_finite: how many have a value that is not finite; they are in no other number.
        least: Euclidean length of the shortest; None of none.
        most: of the longest.
        mean: of all.
        same: SHA-256 (hex, 16 digits) of each of them where all are equal; empty where they differ.
    """

    count: int = 0
    not_finite: int = 0
    least: float | None = None
    most: float | None = None
    mean: float = 0.0
    same: str = ""

    @property
    def is_constant(self) -> bool:
        """Return whether there are several vectors, all equal."""
        return bool(self.same) and self.count > 1


def range_of(column: pa.Array | pa.ChunkedArray) -> VectorRange:
    """Return the range of a column of vectors, or of lists of vectors, in any storage."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.flatten() if pa.types.is_list(array.type) else array
    vectors = column_to_vectors(array, must_be_finite=False)
    is_finite = np.isfinite(vectors).all(axis=1)
    lengths = np.linalg.norm(vectors[is_finite].astype(np.float64), axis=1)
    is_same = len(vectors) > 0 and bool((vectors == vectors[0]).all())
    return VectorRange(
        count=len(vectors),
        not_finite=int((~is_finite).sum()),
        least=float(lengths.min()) if len(lengths) else None,
        most=float(lengths.max()) if len(lengths) else None,
        mean=float(lengths.mean()) if len(lengths) else 0.0,
        same=hashlib.sha256((vectors[0] + 0.0).tobytes()).hexdigest()[:16] if is_same else "",  # -0.0 equals 0.0
    )


def merged(ranges: Iterable[VectorRange]) -> VectorRange:
    """Return the range of the vectors of several parts."""
    parts = [part for part in ranges if part.count]
    finite = [part.count - part.not_finite for part in parts]
    digests = {part.same for part in parts}
    return VectorRange(
        count=sum(part.count for part in parts),
        not_finite=sum(part.not_finite for part in parts),
        least=min((part.least for part in parts if part.least is not None), default=None),
        most=max((part.most for part in parts if part.most is not None), default=None),
        mean=math.fsum(part.mean * n for part, n in zip(parts, finite, strict=True)) / max(1, sum(finite)),
        same=digests.pop() if len(digests) == 1 else "",
    )


def noted(shards: Iterable[Mapping[str, VectorRange]]) -> dict[str, dict[str, Any]]:
    """Return the ranges of the columns of shards as a manifest has them, by the columns' names."""
    parts = defaultdict[str, list[VectorRange]](list)
    for shard in shards:
        for name, found in shard.items():
            parts[name].append(found)
    return {name: _rounded(merged(found)) for name, found in sorted(parts.items())}


def vector_ranges(manifest: Manifest, folder: Folder) -> dict[str, VectorRange]:
    """Return the range of each column of vectors as the manifest notes it; one that it does not note is measured."""
    notes = manifest.notes.get(NOTE, {})
    names = (name for table in TABLES for name in manifest.extractors(table))
    if all(name in notes for name in names):
        return {name: VectorRange(**values) for name, values in notes.items()}
    return measured_ranges(manifest, folder)


def measured_ranges(manifest: Manifest, folder: Folder) -> dict[str, VectorRange]:
    """Return the range of each column of vectors, rounded as it is noted; one part is in memory at a time.

    Raises:
        IntegrityError: a column that is announced is not there.
    """
    return {
        name: VectorRange(**_rounded(merged(map(range_of, _parts(manifest, folder, table, name)))))
        for table in TABLES
        for name in manifest.extractors(table, FeatureKind.VECTOR)
    }


def _parts(manifest: Manifest, folder: Folder, table: str, name: str) -> Iterator[pa.ChunkedArray]:
    column = FEATURE_PREFIX + name
    for split in manifest.splits:
        for part in manifest.parts(table, split):
            with folder.open(part.path) as stream:
                found = pq.ParquetFile(stream).read(columns=[column])
            if column not in found.column_names:
                raise IntegrityError(f"{table}: the column {column} is not there")
            yield found.column(column)


def _rounded(found: VectorRange) -> dict[str, Any]:
    values = {name: getattr(found, name) for name in VectorRange.__dataclass_fields__}
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in values.items()}
