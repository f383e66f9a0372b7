"""What an extractor gives for one picture or document, the column it is for, and how both are kept.

Of a picture: a vector, regions or classes; of a document: a vector of each sentence. `Rejected` stands for one bad
picture among good ones.

    <lake>/features/<extractor>/<fingerprint>/<pack>.parquet    key, value, rejected

The key is the content hash of an image, or the digest of a document's texts. A value is kept as it was computed:
vectors in float32, so that another storage computes nothing again; regions and classes as shards hold them; of a
document, a list of vectors. Where an extractor rejects a picture, the value is null and `rejected` says why. What
float16 cannot hold is rejected in every storage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.packs import PackFolder, PackRef
from pipelines.settings import FeaturesConfig
from schemas.features import FeatureColumn, FeatureKind, Storage, storable, vectors_to_column
from schemas.lake import Folder, Lake
from schemas.messages import IntegrityError
from schemas.tables import column as field
from schemas.tables import table_schema
from schemas.versions import fingerprint

IMAGES, DOCUMENTS = "images", "documents"  # the tables that have feature columns
PACK_VERSION = 1
GROUP_BYTES = 1 << 16  # of rows that are read together, about
FINGERPRINT_DIGITS = 16
F = TypeVar("F", bound=np.floating[Any])
Float32 = npt.NDArray[np.float32]
Vector = Float32  # d
Matrix = Float32  # N x d


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Regions of one picture, surest first.

    Attributes:
        boxes: R x 4 float32 (left, top, right, bottom), as shares 0..1 of the stored picture's width and height.
        labels: R class names ("concepts").
        scores: R float32 in 0..1, falling.
        vectors: R x d float32.
    """

    boxes: Float32
    labels: tuple[str, ...]
    scores: Float32
    vectors: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The likeliest classes of one picture, and their probabilities (float32, falling)."""

    labels: tuple[str, ...]
    probabilities: Float32


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why there is no value of one item; the others of its batch have theirs."""

    message: str


class Passing(Rejected):
    """Why there is no value of an item now; it is not kept for later builds.

    An error that no extractor foresees, or a name that nothing was given for: the picture may come under another one.
    """


Value = Vector | Matrix | Regions | Classes
Row = tuple[Value | Rejected, ...]  # of one item, a value of each column


def feature_column(
    name: str,
    config: FeaturesConfig,
    dimensions: int,
    depends_on: dict[str, Any],
    kind: FeatureKind = FeatureKind.VECTOR,
) -> FeatureColumn:
    """Return an extractor's column.

    Args:
        name: of the column.
        config: says how it is stored.
        dimensions: of a vector, or of a region's vector; 0 for classes.
        depends_on: everything that values follow from beside the item and, for regions, the limits of the settings.
        kind: of its values.
    """
    if kind is FeatureKind.REGIONS:
        limits = {"least": config.min_regions, "most": config.max_regions, "score": config.min_score}
        depends_on = {**depends_on, "limits": limits}
    return FeatureColumn(
        name=name, kind=kind, dimensions=dimensions, storage=config.storage, fingerprint=fingerprint(depends_on)
    )


def kept_regions(scores: Float32, config: FeaturesConfig) -> npt.NDArray[np.intp]:
    """Return the rows of the regions that are kept, by falling score, equal ones in their order.

    Those of at least `min_score`; but no fewer than `min_regions` of what there is, and no more than `max_regions`
    (Anderson et al. 2018: 10 to 100 with a confidence of at least 0.2).
    """
    order = np.argsort(-scores, kind="stable")
    sure = int((scores >= config.min_score).sum())
    return order[: min(max(sure, config.min_regions), config.max_regions)]


def unit_length(vectors: npt.NDArray[F]) -> npt.NDArray[F]:
    """Return vectors of length 1 along the last axis; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(vectors.dtype, copy=False)


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
