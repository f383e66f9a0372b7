"""Synthetic data set versions of any size, written as columns: a million documents in a minute."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, SplitStatistics, commit
from schemas.tables import FEATURE_PREFIX, to_table

DATASET, TEXT, IMAGE = "scale", "text", "image"
SENTENCES, IMAGES, DIMENSIONS = 4, 3, 64
IN_SHARD = 5000
FEATURES = {
    "images": (FeatureColumn(name=IMAGE, dimensions=DIMENSIONS),),
    "documents": (FeatureColumn(name=TEXT, dimensions=DIMENSIONS),),
}
_EMPTY = ("source", "format", "width", "height", "original_bytes", "fingerprint", "licence", "jpeg")
_WORDS = "cut the board glue both ends sand it smooth and paint a second coat let dry over night then turn".split()  # noqa: SIM905


def make_version(
    root: Path, documents: int, validation: int = 1000, in_shard: int = 0, *, rows_per_group: int | None = None
) -> Lake:
    """Write and commit a version with so many training documents, `IN_SHARD` or so many of them a shard.

    Without `rows_per_group`, a file is one row group.
    """
    in_shard = in_shard or IN_SHARD
    lake = Lake.at(str(root))
    folder, files, rng = lake.dataset(DATASET, "v1"), list[FileEntry](), np.random.default_rng(0)
    for split, count in ((Split.TRAIN, documents), (Split.VAL, validation)):
        shards = -(-count // in_shard)
        for shard in range(shards):
            rows = np.arange(shard * in_shard, min((shard + 1) * in_shard, count))
            name = f"{split}/part-{shard:05d}-of-{shards:05d}.parquet"
            for table, made in zip(("documents", "images"), _shard(split, rows, rng), strict=True):
                files.append(write(folder, f"{table}/{name}", made, rows_per_group))
    commit(lake, manifest_of(files, {Split.TRAIN: documents, Split.VAL: validation}))
    return lake


def manifest_of(files: list[FileEntry], counts: dict[Split, int]) -> Manifest:
    return Manifest(
        dataset=DATASET,
        version="v1",
        files=tuple(sorted(files)),
        splits={str(split): _statistics(count) for split, count in counts.items()},
        failures={},
        stages={},
        features=FEATURES,
        config={},
        inputs={},
        schema_versions={"documents": 1, "images": 1},
    )


def _statistics(documents: int) -> SplitStatistics:
    return SplitStatistics(
        documents=documents,
        images=documents * IMAGES,
        sentences=documents * SENTENCES,
        unique_images=documents * IMAGES,
        median_sentences=SENTENCES,
        median_images=IMAGES,
        mean_sentences=SENTENCES,
        mean_images=IMAGES,
        max_sentences=SENTENCES,
        max_images=IMAGES,
        links=0,
        documents_with_known_links=0,
        density=None,
    )


def _shard(split: Split, rows: np.ndarray, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Return the documents and the images of some documents, all of one size and each with images of its own."""
    texts = np.array([" ".join(words) for words in rng.choice(_WORDS, (512, 9))])
    drawn = rng.bytes(32 * len(rows) * IMAGES).hex()
    hashes = [drawn[start : start + 64] for start in range(0, len(drawn), 64)]
    provenance = Provenance(source="benchmark", record_id="1")
    document = Document(
        id="1",
        dataset=DATASET,
        sentences=(Sentence(""),),
        images=(ImageRef(""),),
        links=None,
        provenance=provenance,
        split=split,
    )
    vectors = {FEATURE_PREFIX + TEXT: [np.zeros(DIMENSIONS, np.float16)]}
    looks = {"hash": "1", "is_flat": False, FEATURE_PREFIX + IMAGE: np.zeros(DIMENSIONS, np.float16)}
    documents = _repeated(to_table([to_row(document) | vectors], document_schema(FEATURES["documents"])), len(rows))
    pictures = _repeated(to_table([dict.fromkeys(_EMPTY) | looks], image_schema(FEATURES["images"])), len(hashes))
    sentences = [pa.array(rng.choice(texts, len(rows) * SENTENCES)), pa.array(["caption"] * (len(rows) * SENTENCES))]
    images = [pa.array(hashes), pa.nulls(len(hashes), pa.string())]
    documents = _with(
        documents,
        id=pa.array([f"{split}-{row:09d}" for row in rows]),
        sentences=_lists(pa.StructArray.from_arrays(sentences, ["text", "role"]), SENTENCES),
        images=_lists(pa.StructArray.from_arrays(images, ["hash", "source"]), IMAGES),
        **{FEATURE_PREFIX + TEXT: _lists(_vectors(rng, len(rows) * SENTENCES), SENTENCES)},
    )
    return documents, _with(pictures, hash=pa.array(hashes), **{FEATURE_PREFIX + IMAGE: _vectors(rng, len(hashes))})


def _repeated(table: pa.Table, rows: int) -> pa.Table:
    return table.take(pa.array(np.zeros(rows, np.int64)))


def _with(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """Return a table with other values in some columns."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values.cast(table.schema.field(place).type))
    return table


def _lists(values: pa.Array, each: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, each, dtype=np.int32)), values)


def _vectors(rng: np.random.Generator, count: int) -> pa.Array:
    values = rng.standard_normal((count, DIMENSIONS), np.float32).astype(np.float16)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSIONS)


def write(folder: Folder, path: str, table: pa.Table, rows_per_group: int | None = None) -> FileEntry:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=rows_per_group)
    data = buffer.getvalue()
    folder.write(path, data)
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=table.num_rows)
