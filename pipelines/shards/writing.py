"""One shard, or one part of a table, as a Parquet file: rows sorted, schema fixed, equal input giving equal bytes.

A part goes out a row group at a time, so that a worker holds the pictures and features of one group.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.features.columns import DOCUMENTS, IMAGES, feature_array, feature_packs, texts_key
from pipelines.features.given import given_vector
from pipelines.features.plan import FeaturePlan
from pipelines.images.store import ImageStore
from pipelines.shards.statistics import DocumentSize, size_of
from schemas.documents import Document, Split, document_schema, to_row
from schemas.feature_arrays import vectors_to_column
from schemas.features import FeatureColumn
from schemas.images import Image, image_schema
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
    documents: Iterable[Document],
    images: Iterable[Image],
    *,
    split: Split,
    name: str,
    features: FeaturePlan,
    store: ImageStore,
) -> ShardSummary:
    """Write the pair of same-numbered parts of a shard: its documents, and each image they refer to, once."""
    documents = sorted(documents, key=lambda document: document.id)
    images = sorted(images, key=lambda image: image.hash)
    document_groups = (documents_table(group, features) for group in _groups(documents))
    image_groups = (images_table(group, features, store) for group in _groups(images))
    entries = (
        write_part(folder, f"documents/{split}/{name}", document_groups, document_schema(features.sentences)),
        write_part(folder, f"images/{split}/{name}", image_groups, image_schema(features.images)),
    )
    return ShardSummary(split, entries, Counter(map(size_of, documents)))


def documents_table(documents: Sequence[Document], features: FeaturePlan) -> pa.Table:
    """Return documents as a table of `document_schema(features.sentences)`."""
    table = to_table(map(to_row, documents), document_schema())
    columns = {column.column: _sentence_column(column, documents, features) for column in features.sentences}
    return _with_columns(table, columns, document_schema(features.sentences))


def images_table(images: Sequence[Image], features: FeaturePlan, store: ImageStore) -> pa.Table:
    """Return images with their 256-px JPEGs as a table of `image_schema(features.images)`."""
    table = to_table((_image_row(image, store) for image in images), image_schema())
    columns = {column.column: _image_column(column, images, features) for column in features.images}
    return _with_columns(table, columns, image_schema(features.images))


def _image_column(column: FeatureColumn, images: Sequence[Image], features: FeaturePlan) -> pa.Array:
    if features.given is not None and column.name == features.given.name:
        rows = [given_vector(str(image.source), features.given.path) for image in images]
        return vectors_to_column(np.array(rows).reshape(-1, column.dimensions), column.storage)
    refs = feature_packs(features.lake, column, IMAGES).index().find([image.hash for image in images])
    return feature_array(features.lake, column, IMAGES, [ref for ref in refs if ref is not None])


def _sentence_column(column: FeatureColumn, documents: Sequence[Document], features: FeaturePlan) -> pa.Array:
    refs = (
        feature_packs(features.lake, column, DOCUMENTS)
        .index()
        .find([texts_key(s.text for s in document.sentences) for document in documents])
    )
    return feature_array(features.lake, column, DOCUMENTS, [ref for ref in refs if ref is not None])


def _image_row(image: Image, store: ImageStore) -> dict[str, Any]:
    has_pixels = image.format is not None
    return asdict(image) | {"jpeg": store.read(image.hash) if has_pixels else None}


def _groups(rows: Sequence[T], size: int = ROWS_PER_GROUP) -> Iterator[Sequence[T]]:
    """Yield the rows of one row group after the other."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, array in columns.items():
        table = table.append_column(name, array)
    return table.select(schema.names).cast(schema)
