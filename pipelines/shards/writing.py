"""One shard, or one part of a table, as Parquet bytes: rows sorted, schema fixed, equal input giving equal bytes.

Features are read from their cache a group of rows at a time, so that a shard in the making holds the features of one
group only, beside its bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.features.columns import image_column, sentence_column
from pipelines.features.plan import FeaturePlan
from pipelines.images.store import ImageStore
from pipelines.shards.statistics import DocumentSize, size_of
from schemas.documents import Document, Split, document_schema, to_row
from schemas.images import Image, image_schema
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.tables import to_table

ROWS_PER_GROUP = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """What the manifest and the statistics need to know of a written shard."""

    split: Split
    entries: tuple[FileEntry, ...]
    sizes: tuple[DocumentSize, ...]
    image_hashes: tuple[str, ...]


def part_name(index: int, count: int) -> str:
    """Return the name of part `index` of `count`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def write_table(folder: Folder, path: str, table: pa.Table) -> FileEntry:
    """Write a table as one Parquet file, atomically, and return its manifest entry."""
    return write_tables(folder, path, [table], table.schema)


def write_tables(folder: Folder, path: str, tables: Iterable[pa.Table], schema: pa.Schema) -> FileEntry:
    """Write tables of one schema, one after the other, as one Parquet file, atomically; return its manifest entry."""
    sink = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROWS_PER_GROUP)
            rows += table.num_rows
    data = sink.getvalue().to_pybytes()
    folder.write(path, data)
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


def write_shard(
    folder: Folder,
    documents: Iterable[Document],
    images: Iterable[Image],
    *,
    split: Split,
    index: int,
    count: int,
    features: FeaturePlan,
    store: ImageStore,
) -> ShardSummary:
    """Write the pair of same-numbered parts of a shard: its documents, and each image they refer to, once."""
    documents = sorted(documents, key=_id)
    images = sorted(images, key=_hash)
    name = part_name(index, count)
    entries = (
        write_tables(
            folder,
            f"documents/{split}/{name}",
            (documents_table(group, features) for group in _groups(documents)),
            document_schema(features.sentences),
        ),
        write_tables(
            folder,
            f"images/{split}/{name}",
            (images_table(group, features, store) for group in _groups(images)),
            image_schema(features.images),
        ),
    )
    return ShardSummary(split, entries, tuple(map(size_of, documents)), tuple(map(_hash, images)))


def documents_table(documents: Sequence[Document], features: FeaturePlan) -> pa.Table:
    """Return documents as a table of `document_schema(features.sentences)`."""
    table = to_table(map(to_row, documents), document_schema())
    columns = {column.column: sentence_column(column, documents, features) for column in features.sentences}
    return _with_columns(table, columns, document_schema(features.sentences))


def images_table(images: Sequence[Image], features: FeaturePlan, store: ImageStore) -> pa.Table:
    """Return images with their 256-px JPEGs as a table of `image_schema(features.images)`."""
    table = to_table((_image_row(image, store) for image in images), image_schema())
    columns = {column.column: image_column(column, images, features) for column in features.images}
    return _with_columns(table, columns, image_schema(features.images))


def _image_row(image: Image, store: ImageStore) -> dict[str, Any]:
    has_pixels = image.format is not None
    return asdict(image) | {"jpeg": store.read(image.hash) if has_pixels else None}


def _groups(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows of one row group after the other; of no rows, one group without any."""
    for start in range(0, len(rows) or 1, ROWS_PER_GROUP):
        yield rows[start : start + ROWS_PER_GROUP]


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, array in columns.items():
        table = table.append_column(name, array)
    return table.select(schema.names).cast(schema)


def _id(document: Document) -> str:
    return document.id


def _hash(image: Image) -> str:
    return image.hash
