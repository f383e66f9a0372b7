"""One shard, or one part of a table, as Parquet bytes: rows sorted, schema fixed, equal input giving equal bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.images.store import ImageStore
from pipelines.shards.statistics import DocumentSize, size_of
from schemas.codecs import ragged_to_arrow, vectors_to_arrow
from schemas.documents import Document, Split, document_schema, to_row
from schemas.images import Image, image_schema
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.tables import FEATURE_PREFIX, to_table

Vectors = tuple[tuple[str, bytes], ...]  # extractor, float16 little-endian values; sorted by extractor


@dataclass(frozen=True, slots=True)
class DocumentWithVectors:
    """A document with its split, and the vectors of its sentences (n x d values per extractor)."""

    document: Document
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class ImageWithVectors:
    """An image and its vector per extractor (d values each)."""

    image: Image
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Extractor name -> dimensions, for images and for sentences, as sorted pairs."""

    images: tuple[tuple[str, int], ...]
    sentences: tuple[tuple[str, int], ...]


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
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=256)
    data = sink.getvalue().to_pybytes()
    folder.write(path, data)
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=table.num_rows)


def write_shard(
    folder: Folder,
    documents: Iterable[DocumentWithVectors],
    images: Iterable[ImageWithVectors],
    *,
    split: Split,
    index: int,
    count: int,
    dimensions: Dimensions,
    store: ImageStore,
) -> ShardSummary:
    """Write the pair of same-numbered parts of a shard: its documents, and each image they refer to, once."""
    documents = sorted(documents, key=lambda d: d.document.id)
    images = sorted(images, key=lambda i: i.image.hash)
    name = part_name(index, count)
    entries = (
        write_table(folder, f"documents/{split}/{name}", documents_table(documents, dict(dimensions.sentences))),
        write_table(folder, f"images/{split}/{name}", images_table(images, dict(dimensions.images), store)),
    )
    sizes = tuple(size_of(d.document) for d in documents)
    return ShardSummary(split, entries, sizes, tuple(i.image.hash for i in images))


def documents_table(documents: Sequence[DocumentWithVectors], dimensions: Mapping[str, int]) -> pa.Table:
    """Return documents as a table of `document_schema(dimensions)`."""
    table = to_table((to_row(d.document) for d in documents), document_schema())
    offsets = np.cumsum([0, *(len(d.document.sentences) for d in documents)], dtype=np.int64)
    columns = {
        name: ragged_to_arrow(_matrix([d.vectors for d in documents], name, size), offsets)
        for name, size in dimensions.items()
    }
    return _with_columns(table, columns, document_schema(dimensions))


def images_table(images: Sequence[ImageWithVectors], dimensions: Mapping[str, int], store: ImageStore) -> pa.Table:
    """Return images with their 256-px JPEGs as a table of `image_schema(dimensions)`."""
    table = to_table((_image_row(i.image, store) for i in images), image_schema())
    columns = {
        name: vectors_to_arrow(_matrix([i.vectors for i in images], name, size)) for name, size in dimensions.items()
    }
    return _with_columns(table, columns, image_schema(dimensions))


def _image_row(image: Image, store: ImageStore) -> dict[str, Any]:
    has_pixels = image.format is not None
    return asdict(image) | {"jpeg": store.read(image.hash) if has_pixels else None}


def _matrix(vectors: Sequence[Vectors], name: str, dimensions: int) -> np.ndarray:
    data = b"".join(dict(pairs)[name] for pairs in vectors)
    return np.frombuffer(data, dtype="<f2").reshape(-1, dimensions)


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, array in columns.items():
        table = table.append_column(FEATURE_PREFIX + name, array)
    return table.select(schema.names).cast(schema)
