"""One shard, or one part of a table, as a Parquet file: rows sorted, schema fixed, equal input giving equal bytes.

A part goes out a row group at a time, so that a worker holds the pictures and features of one group.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.embedded import FeatureRow, parse_address
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import DOCUMENTS, IMAGES
from pipelines.images.inspect import given_vector
from pipelines.packs import PackFolder
from pipelines.shards.manifest import DocumentSize, size_of
from schemas.document_rows import to_row
from schemas.documents import Split, document_schema, image_schema
from schemas.features import FeatureColumn, FeatureKind, vectors_to_column
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry
from schemas.parts import VectorRange, merged, range_of
from schemas.raw import RETRIEVAL_SCHEMA, Retrieval, Retrieved, retrieval_row
from schemas.tables import records_table, to_table

ROWS_PER_GROUP = 256
HASH_BYTES = 16  # of a content hash: two that share them do not occur
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """What the manifest needs to know of a written shard."""

    split: Split
    entries: tuple[FileEntry, ...]
    ranges: Mapping[str, VectorRange]  # of each column of vectors


WrittenShard = tuple[ShardSummary, Mapping[DocumentSize, int], list[bytes]]


class _Digesting(io.RawIOBase):
    """Passes bytes on, and digests them."""

    def __init__(self, stream: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._stream = stream
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self.digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


def part_name(index: int, count: int) -> str:
    """Return the name of part `index` of `count`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def write_file(folder: Folder, path: str, write: Callable[[BinaryIO], int]) -> FileEntry:
    """Write a file by a function that fills a stream and returns its rows; return its manifest entry.

    Where the function raises, nothing is written: a file that was there stays as it was.
    """
    with folder.create(path) as sink:
        stream = _Digesting(sink.stream)
        rows = write(cast(BinaryIO, stream))
        sink.commit()
    return FileEntry(path=path, bytes=stream.tell(), sha256=stream.digest.hexdigest(), rows=rows)


def write_part(folder: Folder, path: str, groups: Iterable[pa.Table], schema: pa.Schema) -> FileEntry:
    """Write tables of one schema as the row groups of one Parquet file; return its manifest entry."""

    def write(stream: BinaryIO) -> int:
        rows = 0
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            for table in groups:
                writer.write_table(table)
                rows += table.num_rows
        return rows

    return write_file(folder, path, write)


def write_rows(folder: Folder, path: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> FileEntry:
    """Write rows of a schema as one Parquet file; return its manifest entry."""
    return write_part(folder, path, (to_table(group, schema) for group in groups_of(rows, 64 * ROWS_PER_GROUP)), schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWriter:
    """What the shards of a build are written with.

    Attributes:
        folder: gives the one that a version is written to.
        copies: packs of pictures.
        features: the columns, and where their values are.
    """

    lake: Lake
    dataset: str
    folder: Callable[[str], Folder]
    copies: PackFolder
    features: FeaturePlan

    def write(self, version: str, documents: Iterable[FeaturedDocument], *, split: Split, name: str) -> WrittenShard:
        """Write a shard: its documents, each image they refer to once, and when what was fetched was.

        Returns:
            its summary; how many documents have each size; and the first HASH_BYTES of each image's hash.
        """
        documents = sorted(documents, key=lambda featured: featured.document.id)
        shown = {each.packed.image.hash: each for featured in documents for each in featured.images}
        images = [shown[content_hash] for content_hash in sorted(shown)]
        folder, ranges = self.folder(version), dict[str, list[VectorRange]]()
        entries = (
            write_part(
                folder,
                f"documents/{split}/{name}",
                self._measured(ranges, self.features.sentences, map(self._documents, groups_of(documents))),
                document_schema(self.features.sentences),
            ),
            write_part(
                folder,
                f"images/{split}/{name}",
                self._measured(ranges, self.features.images, map(self._images, groups_of(images))),
                image_schema(self.features.images),
            ),
        )
        times = sorted({row for featured in documents for row in retrievals(featured)})
        if times:
            rows = [retrieval_row(each) for each in times]
            write_rows(self.lake.retrievals(self.dataset, version), f"{split}-{name}", rows, RETRIEVAL_SCHEMA)
        hashes = [bytes.fromhex(content_hash[: 2 * HASH_BYTES]) for content_hash in shown]
        sizes = Counter(size_of(each.document) for each in documents)
        return ShardSummary(split, entries, {name: merged(parts) for name, parts in ranges.items()}), sizes, hashes

    def _measured(
        self, ranges: dict[str, list[VectorRange]], columns: Iterable[FeatureColumn], groups: Iterable[pa.Table]
    ) -> Iterator[pa.Table]:
        """Yield row groups, and note how long the vectors of each are."""
        vectors = [column for column in columns if column.kind is FeatureKind.VECTOR]
        for table in groups:
            for column in vectors:
                ranges.setdefault(column.name, []).append(range_of(table.column(column.column)))
            yield table

    def _documents(self, documents: Sequence[FeaturedDocument]) -> pa.Table:
        table = to_table((to_row(featured.document) for featured in documents), document_schema())
        columns = self.features.arrays(DOCUMENTS, [featured.sentences for featured in documents])
        return _with_columns(table, columns, document_schema(self.features.sentences))

    def _images(self, images: Sequence[FeaturedImage]) -> pa.Table:
        copies = [each.packed.copy for each in images if each.packed.copy is not None]
        jpegs = self.copies.read(copies, ["jpeg"])["jpeg"].combine_chunks()
        has_copy = np.array([each.packed.copy is not None for each in images])
        columns = {"jpeg": jpegs.take(pa.array(np.cumsum(has_copy) - 1, mask=~has_copy))}
        columns |= self.features.arrays(IMAGES, [each.features for each in images])
        for column in self.features.images:
            if column.column not in columns:
                columns[column.column] = self._given(column, images)
        schema = image_schema()
        known = schema.remove(schema.get_field_index("jpeg"))
        table = records_table([each.packed.image for each in images], known)
        return _with_columns(table, columns, image_schema(self.features.images))

    def _given(self, column: FeatureColumn, images: Sequence[FeaturedImage]) -> pa.Array:
        """Return the rows of the feature array that the source brings."""
        addresses = (parse_address(str(each.packed.image.source)) for each in images)
        rows = [given_vector(each.number, self.features.given) for each in addresses if isinstance(each, FeatureRow)]
        return vectors_to_column(np.array(rows).reshape(-1, column.dimensions), column.storage)


def retrievals(featured: FeaturedDocument) -> Iterator[Retrieval]:
    """Yield when the page of a document, and its images, were fetched, as far as they were."""
    document = featured.document
    read = document.provenance
    if read.retrieved is not None:
        yield Retrieval(Retrieved.DOCUMENT, document.id, read.url, read.retrieved, read.captured or "")
    for each in featured.images:
        if each.packed.retrieved is not None:
            yield Retrieval(Retrieved.IMAGE, each.packed.image.hash, each.packed.image.source, each.packed.retrieved)


def groups_of(rows: Sequence[T], size: int = ROWS_PER_GROUP) -> Iterator[Sequence[T]]:
    """Yield the rows of one row group after the other."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, array in columns.items():
        table = table.append_column(name, array)
    return table.select(schema.names).cast(schema)
