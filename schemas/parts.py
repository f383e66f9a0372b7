"""Parts of a data set version as a reader meets them: in pairs, each checked against the manifest first.

How long the vectors of a feature column are, part by part: what a build notes in its manifest, and checks read.

Numbers are rounded to six digits, so that a build on another kind of processor notes the same.
"""

import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.features import FeatureKind, column_to_vectors
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError, NotFoundError
from schemas.tables import FEATURE_PREFIX, check_schema, read_columns
from schemas.versions import digest_stream

_VERIFIED_PARTS = 65_536  # remembered as checked
NOTE = "vectors"  # of a manifest
TABLES = ("documents", "images")


class Shard(NamedTuple):
    """A documents part of a split, and the images part of equal number, which has the images that those show."""

    documents: FileEntry
    images: FileEntry

    @property
    def split(self) -> str:
        return self.documents.path.split("/")[-2]

    @property
    def name(self) -> str:
        """Return the name of its parts in the folder of the split."""
        return part_name(self.documents)

    def path(self, folder: str) -> str:
        """Return the path that a file made of the shard has in a folder."""
        return f"{folder}/{self.split}/{self.name}"


def split_parts(manifest: Manifest, split: Split | str) -> list[Shard]:
    """Return a split's shards, in order.

    Raises:
        NotFoundError: the data set version has no part in that split.
        IntegrityError: a documents part has no images part beside it.
    """
    documents, images = manifest.parts("documents", split), manifest.parts("images", split)
    if not documents:
        there = ", ".join(sorted(name for name, each in manifest.splits.items() if each.documents)) or "none"
        raise NotFoundError(f"{manifest.dataset}@{manifest.version} has no split '{split}'; splits: {there}")
    if [part_name(entry) for entry in documents] != [part_name(entry) for entry in images]:
        raise IntegrityError(f"{manifest.dataset}@{manifest.version}, {split}: documents and images parts do not pair")
    return list(map(Shard, documents, images))


def sampled(manifest: Manifest, documents: int) -> Manifest:
    """Return a manifest whose splits are cut to their first shards, of at most so many documents, at least one shard.

    Which shard a document is in follows from a hash of its id, so the first shards are a random sample of the split.

    Args:
        manifest: of the whole version.
        documents: of a split; 0: all.
    """
    left_out: set[str] = set()
    for split in manifest.splits if documents else ():
        shards = split_parts(manifest, split) if manifest.parts("documents", split) else []
        totals = accumulate(shard.documents.rows for shard in shards)
        beyond = [shard for shard, total in zip(shards, totals, strict=True) if total > documents]
        left_out.update(entry.path for shard in beyond if shard != shards[0] for entry in shard)
    if not left_out:
        return manifest
    return replace(manifest, files=tuple(entry for entry in manifest.files if entry.path not in left_out))


def part_name(entry: FileEntry) -> str:
    """Return the name of a part in the folder of its split."""
    return entry.path.rsplit("/", 1)[-1]


def read_part(
    folder: Folder,
    entry: FileEntry,
    columns: Sequence[str] | None,
    schema: pa.Schema | None = None,
    rows: Sequence[int] | None = None,
) -> pa.Table:
    """Return some columns of a part, all for None, after its bytes, its schema and its number of rows were checked.

    Args:
        folder: of the version.
        entry: of the part.
        columns: None: all.
        schema: that the part must have.
        rows: that are wanted, in order; only their row groups are read. None: all.

    Raises:
        IntegrityError: the part is damaged, or not of this schema.
    """
    _verify(folder, entry)
    with folder.open(entry.path) as stream:
        file = pq.ParquetFile(stream)
        if schema is not None:
            check_schema(file.schema_arrow, schema, where=entry.path)
        if file.metadata.num_rows != entry.rows:
            raise IntegrityError(f"{entry.path}: {file.metadata.num_rows} rows, the manifest has {entry.rows}")
        names = columns if columns is None else list(columns)
        return file.read(columns=names) if rows is None else _read_rows(file, names, rows)


def _read_rows(file: pq.ParquetFile, columns: list[str] | None, rows: Sequence[int]) -> pa.Table:
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    ends = np.cumsum(sizes, dtype=np.int64)
    wanted = np.asarray(rows, np.int64)
    groups, place = np.unique(np.searchsorted(ends, wanted, side="right"), return_inverse=True)
    read = np.take(sizes, groups)
    not_read = ends[groups] - np.cumsum(read)  # rows before each group
    return file.read_row_groups(groups.tolist(), columns=columns).take(wanted - not_read[place])


def rows_where(
    folder: Folder, part: FileEntry, columns: Sequence[str], wanted: Sequence[str], schema: pa.Schema | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a part whose first column is one of some texts."""
    table = read_part(folder, part, columns, schema)
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table.column(0), pa.array(wanted, pa.string()))).to_pylist()
    return rows


@lru_cache(_VERIFIED_PARTS)
def _verify(folder: Folder, entry: FileEntry) -> None:
    """Raise an `IntegrityError` where a file is not there or its bytes are not those the manifest names.

    Of an object store, which keeps checksums of its own, no more is read than what is asked for: the size is compared.
    """
    try:
        with folder.open(entry.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            digest = entry.sha256 if folder.local is None and size == entry.bytes else digest_stream(stream)
    except FileNotFoundError as problem:
        raise IntegrityError(f"{folder.uri}/{entry.path}: missing, though the manifest names it") from problem
    if digest != entry.sha256:
        raise IntegrityError(
            f"{folder.uri}/{entry.path}: damaged: SHA-256 {digest[:16]}..., the manifest has {entry.sha256[:16]}...; "
            "`multilink datasets verify` names every damaged file"
        )


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
    if all(name in notes for table in TABLES for name in manifest.extractors(table)):
        return {name: VectorRange(**values) for name, values in notes.items()}
    return measured_ranges(manifest, folder)


def measured_ranges(manifest: Manifest, folder: Folder) -> dict[str, VectorRange]:
    """Return the range of each column of vectors, rounded as it is noted; one part is in memory at a time.

    Raises:
        IntegrityError: a column that is announced is not there.
    """
    return {
        name: VectorRange(**_rounded(merged(map(range_of, _columns_of_parts(manifest, folder, table, name)))))
        for table in TABLES
        for name in manifest.extractors(table, FeatureKind.VECTOR)
    }


def _columns_of_parts(manifest: Manifest, folder: Folder, table: str, name: str) -> Iterator[pa.ChunkedArray]:
    column = FEATURE_PREFIX + name
    for split in manifest.splits:
        for part in manifest.parts(table, split):
            found = read_columns(folder, part.path, [column])
            if column not in found.column_names:
                raise IntegrityError(f"{table}: the column {column} is not there")
            yield found.column(column)


def _rounded(found: VectorRange) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in asdict(found).items()}
