"""A version of a data set, written by hand: two documents of two pictures each, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from lakes import statistics_of, write_table

from orchestration.config import CheckSettings
from orchestration.rules.verdicts import VersionOnDisk
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn, Storage, quantise
from schemas.lake import Folder
from schemas.manifest import Manifest, SplitStatistics, version_name
from schemas.tables import FEATURE_PREFIX, to_table

CODES = ("00000000ffffffff", "ffffffff00000000", "0f0f0f0f0f0f0f0f", "f0f0f0f0f0f0f0f0")


def write_version(
    folder: Folder,
    *,
    vectors: np.ndarray | None = None,
    policy: str = "drop-documents",
    documents: Mapping[str, int] | None = None,
    before: Mapping[str, int] | None = None,
    stages: Mapping[str, Mapping[str, int]] | None = None,
    leaks: Sequence[Mapping[str, Any]] = (),
    duplicates_left: int = 0,
    bounds: CheckSettings | None = None,
    records: str = "",
    storage: Storage = Storage.FLOAT16,
) -> VersionOnDisk:
    """Write two documents of two pictures each; what is given replaces what is sound."""
    numbers = np.eye(4, dtype=np.float32) if vectors is None else vectors.astype(np.float32)
    values = _stored(numbers, storage)
    config = {"dedupe": {"policy": policy}}
    features = {
        "images": (FeatureColumn(name="cnn", dimensions=numbers.shape[1], storage=storage),),
        "documents": (FeatureColumn(name="text", dimensions=3),),
    }
    made = [_document(f"d{place}", [f"h{2 * place}", f"h{2 * place + 1}"]) for place in range(2)]
    rows = [to_row(each) | {f"{FEATURE_PREFIX}text": [list(half) for half in np.eye(2, 3)]} for each in made]
    looks = [_image(f"h{place}", CODES[place], values[place]) for place in range(4)]
    tables = {
        "documents": to_table(rows, document_schema(features["documents"])),
        "images": to_table(looks, image_schema(features["images"])),
    }
    manifest = Manifest(
        dataset="own",
        version=version_name(config, {"records": records}, {}),
        files=tuple(write_table(folder, f"{name}/train/part-0.parquet", table) for name, table in tables.items()),
        splits=_statistics(documents or {"train": 2}),
        failures={},
        stages=stages or {},
        features=features,
        config=config,
        inputs={"records": records},
        schema_versions={},
        notes={"leaks": list(leaks), "near_duplicates": {"pictures": 7, "left": duplicates_left}},
    )
    earlier = None if before is None else replace(manifest, splits=_statistics(before))
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
    unknown = dict.fromkeys(("source", "format", "width", "height", "original_bytes", "licence", "jpeg"))
    return unknown | {"hash": key, "fingerprint": code, "is_flat": False, f"{FEATURE_PREFIX}cnn": vector}


def _statistics(counts: Mapping[str, int]) -> dict[str, SplitStatistics]:
    return {split: replace(statistics_of(()), documents=count) for split, count in counts.items()}
