"""A version of a data set, written by hand: two documents of two pictures each, and what is wrong with it."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestration.config import CheckSettings
from orchestration.rules.verdicts import VersionOnDisk
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn, Storage, quantise
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest, SplitStatistics, version_name
from schemas.tables import FEATURE_PREFIX, to_table

CODES = ("00000000ffffffff", "ffffffff00000000", "0f0f0f0f0f0f0f0f", "f0f0f0f0f0f0f0f0")


def write_version(
    folder: Folder,
    *,
    codes: Sequence[str] = CODES,
    vectors: np.ndarray | None = None,
    policy: str = "drop-documents",
    radius: int = 3,
    documents: Mapping[str, int] | None = None,
    before: Mapping[str, int] | None = None,
    stages: Mapping[str, Mapping[str, int]] | None = None,
    leaks: Sequence[Mapping[str, Any]] = (),
    bounds: CheckSettings | None = None,
    records: str = "",
    storage: Storage = Storage.FLOAT16,
) -> VersionOnDisk:
    """Write two documents of two pictures each; what is given replaces what is sound."""
    numbers = np.eye(4, dtype=np.float32) if vectors is None else vectors.astype(np.float32)
    values = _stored(numbers, storage)
    config = {"dedupe": {"policy": policy, "radius": radius}}
    features = {
        "images": (FeatureColumn(name="cnn", dimensions=numbers.shape[1], storage=storage),),
        "documents": (FeatureColumn(name="text", dimensions=3),),
    }
    made = [_document(f"d{place}", [f"h{2 * place}", f"h{2 * place + 1}"]) for place in range(2)]
    halves = np.eye(2, 3, dtype=np.float16)
    rows = [to_row(each) | {f"{FEATURE_PREFIX}text": [list(halves[0]), list(halves[1])]} for each in made]
    looks = [_image(f"h{place}", codes[place], values[place]) for place in range(4)]
    files = [
        _write(folder, "documents/train/part-0.parquet", to_table(rows, document_schema(features["documents"]))),
        _write(folder, "images/train/part-0.parquet", to_table(looks, image_schema(features["images"]))),
    ]
    manifest = Manifest(
        dataset="own",
        version=version_name(config, {"records": records}, {}),
        files=tuple(files),
        splits={name: _statistics(count) for name, count in (documents or {"train": 2}).items()},
        failures={},
        stages=stages or {},
        features=features,
        config=config,
        inputs={"records": records},
        schema_versions={},
        notes={"leaks": list(leaks)},
    )
    earlier = None if before is None else replace(manifest, splits={k: _statistics(n) for k, n in before.items()})
    folder.write("manifest.json", manifest.to_json().encode())
    return VersionOnDisk(manifest=manifest, folder=folder, before=earlier, bounds=bounds or CheckSettings())


def _document(key: str, hashes: Sequence[str]) -> Document:
    return Document(
        id=key,
        dataset="own",
        sentences=(Sentence("One ."), Sentence("Two .")),
        images=tuple(ImageRef(name) for name in hashes),
        links=None,
        provenance=Provenance(source="test", record_id=key),
        split=Split.TRAIN,
    )


def _stored(numbers: np.ndarray, storage: Storage) -> list[object]:
    if storage is Storage.INT8:
        return [{"scale": scale, "values": list(row)} for scale, row in zip(*quantise(numbers), strict=True)]
    return [list(row) for row in numbers.astype(np.float16 if storage is Storage.FLOAT16 else np.float32)]


def _image(key: str, code: str, vector: object) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(
        ("source", "format", "width", "height", "original_bytes", "licence", "jpeg")
    ) | {"hash": key, "fingerprint": code, "is_flat": False}
    return row | {f"{FEATURE_PREFIX}cnn": vector}


def _write(folder: Folder, path: str, table: pa.Table) -> FileEntry:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    folder.write(path, buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    return FileEntry(path=path, bytes=len(buffer.getvalue()), sha256=digest, rows=table.num_rows)


def _statistics(documents: int) -> SplitStatistics:
    numbers = {"images": 0, "sentences": 0, "unique_images": 0, "max_sentences": 0, "max_images": 0, "links": 0}
    means = dict.fromkeys(("median_sentences", "median_images", "mean_sentences", "mean_images"), 0.0)
    return SplitStatistics(documents=documents, **numbers, **means, documents_with_known_links=0, density=None)
