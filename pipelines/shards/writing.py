"""One shard, or one part of a table, as a Parquet file: rows sorted, schema fixed, equal input giving equal bytes.

A part goes out a row group at a time, so that a worker holds the pictures and features of one group.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.features.columns import DOCUMENTS, IMAGES
from pipelines.features.extraction import FeaturedDocument, FeaturedImage
from pipelines.features.given import given_vector
from pipelines.features.plan import FeaturePlan
from pipelines.packs import PackFolder
from pipelines.shards.statistics import DocumentSize, size_of
from schemas.documents import Split, document_schema, to_row
from schemas.feature_arrays import vectors_to_column
from schemas.images import image_schema
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.tables import to_table

ROWS_PER_GROUP = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """What the manifest needs to know of a written shard."""

    split: Split
    entries: tuple[FileEntry, ...]
    sizes: Mapping[DocumentSize, int]


class _Digesting(io.RawIOBase):
    """Passes bytes on, and knows how many they were and their SHA-256."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def entry(self, path: str, rows: int) -> FileEntry:
        return FileEntry(path=path, bytes=self._size, sha256=self._digest.hexdigest(), rows=rows)


def part_name(index: int, count: int) -> str:
    """Return the name of part `index` of `count`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def write_part(folder: Folder, path: str, groups: Iterable[pa.Table], schema: pa.Schema) -> FileEntry:
    """Write tables of one schema as the row groups of one Parquet file; return its manifest entry."""
    sink = folder.create(path)
    stream, rows = _Digesting(sink.stream), 0
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for table in groups:
            writer.write_table(table)
            rows += table.num_rows
    sink.commit()
    return stream.entry(path, rows)


def write_rows(folder: Folder, path: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> FileEntry:
    """Write rows of a schema as one Parquet file; return its manifest entry."""
    return write_part(folder, path, (to_table(group, schema) for group in _groups(rows, 64 * ROWS_PER_GROUP)), schema)


def write_shard(
    folder: Folder,
    documents: Iterable[FeaturedDocument],
    *,
    split: Split,
    name: str,
    features: FeaturePlan,
    copies: PackFolder,
) -> ShardSummary:
    """Write the pair of same-numbered parts of a shard: its documents, and each image they refer to, once."""
    featured = sorted(documents, key=lambda each: each.document.id)
    images = shown_images(featured)
    document_groups = (documents_table(group, features) for group in _groups(featured))
    image_groups = (images_table(group, features, copies) for group in _groups(images))
    entries = (
        write_part(folder, f"documents/{split}/{name}", document_groups, document_schema(features.sentences)),
        write_part(folder, f"images/{split}/{name}", image_groups, image_schema(features.images)),
    )
    return ShardSummary(split, entries, Counter(size_of(each.document) for each in featured))


def shown_images(documents: Iterable[FeaturedDocument]) -> list[FeaturedImage]:
    """Return the images of documents, once each, in the order of their hashes."""
    by_hash = {each.image.hash: each for document in documents for each in document.images}
    return [cast(FeaturedImage, by_hash[content_hash]) for content_hash in sorted(by_hash)]


def documents_table(documents: Sequence[FeaturedDocument], features: FeaturePlan) -> pa.Table:
    """Return documents as a table of `document_schema(features.sentences)`."""
    table = to_table((to_row(each.document) for each in documents), document_schema())
    columns = features.arrays(DOCUMENTS, [each.features for each in documents])
    return _with_columns(table, columns, document_schema(features.sentences))


def images_table(images: Sequence[FeaturedImage], features: FeaturePlan, copies: PackFolder) -> pa.Table:
    """Return images with their 256-px JPEGs as a table of `image_schema(features.images)`."""
    jpegs = iter(copies.read([each.copy for each in images if each.copy], ["jpeg"])["jpeg"].to_pylist())
    rows = (asdict(each.image) | {"jpeg": next(jpegs) if each.copy else None} for each in images)
    table = to_table(rows, image_schema())
    columns = features.arrays(IMAGES, [each.features for each in images])
    for column in features.images:
        if features.given is not None and column.name == features.given.name:
            vectors = [given_vector(str(each.image.source), features.given.path) for each in images]
            matrix = np.array(vectors).reshape(-1, column.dimensions)
            columns[column.column] = vectors_to_column(matrix, column.storage)
    return _with_columns(table, columns, image_schema(features.images))


def _groups(rows: Sequence[T], size: int = ROWS_PER_GROUP) -> Iterator[Sequence[T]]:
    """Yield the rows of one row group after the other."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, array in columns.items():
        table = table.append_column(name, array)
    return table.select(schema.names).cast(schema)
