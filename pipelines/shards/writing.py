"""What a build writes: each shard, each part of a table, and the manifest, whose name the version has.

A part is a Parquet file: rows sorted, schema fixed, equal input giving equal bytes. It goes out a row group at a time,
so that a worker holds the pictures and features of one group.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.embedded import FeatureRow, parse_address
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import DOCUMENTS, IMAGES
from pipelines.images.inspect import blas_kind, fingerprint_libraries, given_vector
from pipelines.packs import PackFolder
from pipelines.settings import FingerprintName
from pipelines.splits.shared import leak_counts
from pipelines.transforms import stage_table
from schemas import parts
from schemas.codecs import picture_libraries
from schemas.configs import Json
from schemas.document_rows import to_row
from schemas.documents import Document, Split, document_schema, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, NEAR_COPY_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Failure, Stage
from schemas.features import FeatureColumn, FeatureKind, vectors_to_column
from schemas.lake import Folder, Lake
from schemas.manifest import COPIES, FileEntry, Manifest, SplitStatistics, version_name
from schemas.parts import VectorRange, merged, range_of
from schemas.raw import RETRIEVAL_SCHEMA, UNREACHED, Retrieval, Retrieved, retrieval_row
from schemas.tables import TABLE, records_table, schema_version, to_table
from schemas.versions import canonical_json, content, reached_digest

TABLES = {
    "failures": FAILURE_SCHEMA,
    UNREACHED: FAILURE_SCHEMA,
    "duplicates": DUPLICATE_SCHEMA,
    "near-copies": NEAR_COPY_SCHEMA,
    "leaks": LEAK_SCHEMA,
}
_SCHEMAS = (document_schema(), image_schema(), *TABLES.values())
_DIGESTS = 1 << 256


def build_identity(
    config: Mapping[str, Any], extractors: Iterable[tuple[str, str]], modules: Iterable[str]
) -> dict[str, Any]:
    """Return all that decides what a build makes of what it reads: settings, extractors, code, libraries, schemas.

    Args:
        config: the settings that change what is built.
        extractors: names and fingerprints.
        modules: those that the build begins with; what they import counts.
    """
    inputs = {"code": reached_digest(*modules)}
    inputs |= {f"extractors.{name}": value for name, value in extractors}
    pyarrow = f"{pa.__version__} {pa.cpp_build_info.package_kind}".strip()  # brings a zstd of its own
    libraries = {"pyarrow": pyarrow, **picture_libraries()}
    libraries |= fingerprint_libraries(FingerprintName(config["dedupe"]["fingerprint"]))
    if config["copy_detection"]["extractor"]:
        libraries |= {"blas": blas_kind()}
    inputs |= {f"libraries.{name}": version for name, version in libraries.items()}
    return {
        "config": config,
        "inputs": inputs,
        "schema_versions": {schema.metadata[TABLE].decode(): schema_version(schema) for schema in _SCHEMAS},
    }


def version_of_build(identity: Mapping[str, Any], digest: int) -> str:
    """Return the version of a build: a fingerprint of what decides it (`build_identity`) and of what it read."""
    return version_name(**_with_records(identity, digest))


def content_digest(item: Document | Failure) -> int:
    """Return the SHA-256 of a document, or of a failure, as a number; luck and the versions of libraries aside."""
    if isinstance(item, Failure):
        item = item.lasting
        parts: Json = [str(item.stage), item.record_id, item.image, str(item.reason), item.message]
    else:
        parts = content(item)
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest(), "big")


def add_digests(digests: Iterable[int]) -> int:
    """Return the digest of a multiset: the same number whatever the order."""
    return sum(digests) % _DIGESTS


def compose_manifest(
    identity: Mapping[str, Any],
    features: FeaturePlan,
    stages: Collection[str],
    facts: Mapping[str, Sequence[Any]],
    *,
    copies: str,
) -> Manifest:
    """Return the manifest of a finished build, transient reasons still apart (`Manifest.lasting`).

    Args:
        identity: what decided it (`build_identity`).
        features: its feature columns.
        stages: that were on.
        copies: name of the folder of its copies.
        facts: what it knows of itself, whose number does not grow with the documents'. Each is a list, in any order:
            `digest`, the one number of all that was read; `files`, entries of tables; `shards`, their summaries;
            and numbers of things: `unique_images` of splits, of `duplicates` and `near-copies` as `count_duplicates`
            names them, `passed` and `recounted` of `count_passed`, `lost` of `count_lost`, `leaks` of `ListLeaks`,
            `sizes` of shards' documents.
    """
    known = defaultdict(list, facts)
    (digest,), shards = known["digest"], sorted(known["shards"], key=attrgetter("entries"))
    deciding = _with_records(identity, digest)
    sizes: dict[str, Counter[DocumentSize]] = {split: Counter() for split in Split}
    unique, reasons = Counter(dict(known["unique_images"])), Counter[str]()
    for (split, size), number in known["sizes"]:
        sizes[split][size] += number
    for (_, reason), number in known["lost"]:
        reasons[reason] += number
    alike, near = Counter(dict(known["duplicates"])), Counter(dict(known["near-copies"]))
    copied = {"near_copies": {"images": near["images"], "clusters": near["clusters"]}}
    return Manifest(
        dataset=deciding["config"]["dataset"],
        version=version_name(**deciding),
        files=tuple(sorted([*known["files"], *(entry for shard in shards for entry in shard.entries)])),
        splits={str(split): summarise(counted, unique[split]) for split, counted in sizes.items()},
        failures=dict(sorted(reasons.items())),
        stages=stage_table(stages, known["passed"], known["lost"], known["recounted"]),
        features={"images": features.images, "documents": features.sentences},
        notes={
            "leaks": leak_counts(known["leaks"]),
            COPIES: copies,
            parts.NOTE: parts.noted(shard.ranges for shard in shards),
            "near_duplicates": {"pictures": alike["occurrences"], "left": alike["left"]},
            **(copied if Stage.COPY_DETECTION in stages else {}),
        },
        **deciding,
    )


def _with_records(identity: Mapping[str, Any], digest: int) -> dict[str, Any]:
    return {**identity, "inputs": {**identity["inputs"], "records": f"{digest:064x}"}}


class DocumentSize(NamedTuple):
    """Sentences, images and links of one document (`links` is None where they are unknown), and images with a place."""

    sentences: int
    images: int
    links: int | None
    placed: int = 0


def size_of(document: Document) -> DocumentSize:
    links = None if document.links is None else len({(link.sentence, link.image) for link in document.links})
    placed = sum(place is not None for place in document.after_sentence)
    return DocumentSize(len(document.sentences), len(document.images), links, placed)


def summarise(sizes: Mapping[DocumentSize, int], unique_images: int) -> SplitStatistics:
    """Return the statistics of a split; density is averaged over the documents whose links are known.

    Args:
        sizes: how many documents have each size.
        unique_images: how many different images they show.
    """
    documents = sum(sizes.values())
    texts, images, links = Counter[int](), Counter[int](), Counter[int]()
    density, known = Fraction(), 0
    for size, count in sizes.items():
        texts[size.sentences] += count
        images[size.images] += count
        if size.links is not None:
            links[size.links] += count
            density += Fraction(size.links / (size.sentences * size.images)) * count  # exact: in any order
            known += count
    return SplitStatistics(
        documents=documents,
        images=_total(images),
        sentences=_total(texts),
        unique_images=unique_images,
        median_sentences=_median(texts),
        median_images=_median(images),
        mean_sentences=round(_total(texts) / max(1, documents), 6),
        mean_images=round(_total(images) / max(1, documents), 6),
        max_sentences=max(texts, default=0),
        max_images=max(images, default=0),
        links=_total(links),
        documents_with_known_links=known,
        density=round(float(density) / known, 6) if known else None,
        placed_images=sum(size.placed * count for size, count in sizes.items()),
    )


def _total(counts: Mapping[int, int]) -> int:
    return sum(value * count for value, count in counts.items())


def _median(counts: Mapping[int, int]) -> float:
    """Return the median of values, each so many times; 0 where there are none."""
    values = sorted(counts)
    ends = list(accumulate(counts[value] for value in values))
    middle = ((ends[-1] - 1) // 2, ends[-1] // 2) if ends else ()
    return sum(values[bisect_right(ends, place)] for place in middle) / 2


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
        table = records_table([each.packed.image for each in images], schema.remove(schema.get_field_index("jpeg")))
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
