"""Feature values in Arrow: as packs of the lake keep them, and as columns of shards.

    <lake>/features/<extractor>/<fingerprint>/<pack>.parquet    key, value, rejected

The key is the content hash of an image, or the digest of a document's texts. A value is kept as it was computed:
vectors in float32, so that another storage computes nothing anew; regions and classes as shards hold them; of a
document, a list of vectors. Where an extractor rejects a picture, the value is null and `rejected` says why. What
float16 cannot hold is rejected in every storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.features.values import Classes, Regions, Rejected, Value
from pipelines.packs import PackFolder, PackRef
from schemas.errors import IntegrityError
from schemas.features import FeatureColumn, FeatureKind, Storage, storable, vectors_to_column
from schemas.lake import Folder, Lake
from schemas.tables import column as field
from schemas.tables import table_schema
from schemas.versions import canonical_json

IMAGES, DOCUMENTS = "images", "documents"  # the tables that have feature columns
PACK_VERSION = 1
GROUP_BYTES = 1 << 16  # of rows that are read together, about
FINGERPRINT_DIGITS = 16


def feature_folder(lake: Lake, column: FeatureColumn) -> Folder:
    """Return the folder of a column's values: its name follows from all they depend on beside the key."""
    return lake.features.child(column.name, column.fingerprint[:FINGERPRINT_DIGITS])


def feature_packs(lake: Lake, column: FeatureColumn, table: str) -> PackFolder:
    """Return the packs of a column of images, or of documents' sentences."""
    width = {FeatureKind.VECTOR: 4, FeatureKind.REGIONS: 64, FeatureKind.CLASSES: 1}[column.kind]
    row_bytes = width * max(column.dimensions, 1) * (1 if table == IMAGES else 12)  # sentences, usually
    fields = [
        field("key", pa.string(), "SHA-256 (hex) of the image, or of the document's texts"),
        field("value", _kept_type(column, table), f"what {column.name} gives, in full", nullable=True),
        field("rejected", pa.string(), "why there is no value", nullable=True),
    ]
    rows_per_group = min(64, max(1, GROUP_BYTES // row_bytes))
    schema = table_schema("features", PACK_VERSION, fields)
    return PackFolder(feature_folder(lake, column), schema, "key", rows_per_group)


def texts_key(texts: Iterable[str]) -> str:
    """Return the key of a document's texts: the SHA-256 (hex) of their JSON."""
    return hashlib.sha256(canonical_json(list(texts)).encode()).hexdigest()


def checked(value: Value | Rejected, column: FeatureColumn) -> Value | Rejected:
    """Return a value that can be stored in its column, or why it cannot.

    Raises:
        IntegrityError: it is something else than the column says.
    """
    kind, size = FeatureKind.VECTOR, column.dimensions
    if isinstance(value, Rejected):
        return value
    if isinstance(value, Regions):
        kind, parts = FeatureKind.REGIONS, [value.vectors, value.boxes, value.scores[:, None]]
    elif isinstance(value, Classes):
        kind, parts = FeatureKind.CLASSES, [value.probabilities[:, None]]
    else:
        parts = [np.atleast_2d(value)]
    if kind is not column.kind or (size and parts[0].shape[1] != size):
        raise IntegrityError(f"extractor {column.name}: expected {column.describe()}, found {kind} of another shape")
    is_sound = all(storable(part, Storage.FLOAT16).all() for part in parts)
    return value if is_sound else Rejected("a value is not finite, or beyond float16's 65504")


def value_rows(values: Iterable[Value | Rejected]) -> list[Any]:
    """Return values as a pack's rows; null where there is none."""
    return [None if isinstance(value, Rejected) else _row(value) for value in values]


def value_array(values: Iterable[Value | Rejected], column: FeatureColumn, table: str) -> pa.Array:
    """Return values as a column of a shard's table; none of them is rejected."""
    return _stored(pa.array(value_rows(values), _kept_type(column, table)), column)


def feature_array(lake: Lake, column: FeatureColumn, table: str, refs: Sequence[PackRef]) -> pa.Array:
    """Return the values at some references, in order, as a column of a shard.

    Raises:
        BuildError: a pack is gone.
    """
    packs = feature_packs(lake, column, table)
    return _stored(packs.read(refs, ["value"])["value"].combine_chunks(), column)


def _kept_type(column: FeatureColumn, table: str) -> pa.DataType:
    """Return the type of a value in a pack: a vector is a list there, since Parquet knows no null of a fixed size."""
    kind = pa.list_(pa.float32()) if column.kind is FeatureKind.VECTOR else column.type
    return kind if table == IMAGES else pa.list_(kind)


def _stored(array: pa.Array, column: FeatureColumn) -> pa.Array:
    """Return values as packs keep them in the storage of their column."""
    if column.kind is not FeatureKind.VECTOR:
        return array
    is_nested = pa.types.is_list(array.type.value_type)
    floats = array.flatten(recursive=True).to_numpy()
    vectors = vectors_to_column(floats.reshape(-1, column.dimensions), column.storage)
    offsets = np.cumsum([0, *array.value_lengths().to_numpy()], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), vectors) if is_nested else vectors


def _row(value: Value) -> Any:
    if isinstance(value, Regions):
        regions = zip(value.boxes, value.labels, value.scores, value.vectors.astype(np.float16), strict=True)
        return [dict(zip(("box", "label", "score", "vector"), region, strict=True)) for region in regions]
    if isinstance(value, Classes):
        classes = zip(value.labels, value.probabilities, strict=True)
        return [{"label": label, "probability": probability} for label, probability in classes]
    return value if value.ndim == 1 else list(value)
