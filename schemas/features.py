"""FEATURES: what a feature column is called, of which kind it is, its Arrow type, and its values as arrays and back.

    features.<name>   one vector            float16, float32, or int8 values with a scale of their own
    regions.<name>    regions of an image   box, label, score, float16 vector
    classes.<name>    likeliest classes     label, probability

A manifest lists a version's columns; the schemas of the images and documents parts are made from the same list.

What a storage loses is bounded: a vector v is stored as v + e, and then
1 - cos(v, v + e) <= 1 - sqrt(1 - |e|^2 / |v|^2) for |e| < |v|. For float16, whose values have 11 significant bits,
|e| <= 2^-11 |v|, so that at most 1.2e-7 is lost; for int8 each value is off by at most half a step, max|v| / 254.
Measured, mean and largest: vectors of `efficientnet-lite0` of 44 pictures (photographs and crops of them) lose 2.1e-8
and 2.7e-8 in float16, 8.2e-5 and 1.7e-4 in int8; sentence vectors of `use-multilingual` 2.3e-8 and 2.6e-8 in float16,
1.1e-5 and 1.4e-5 in int8.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.messages import IntegrityError
from schemas.plugins import SUM
from schemas.tables import FEATURE_PREFIX, column

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Stored = npt.NDArray[np.float16] | Float32  # N x d, as a reader gets it
NAMES, NAMES_ENCODER = "-names", "use-multilingual"  # end of a column of class names, which this encoder encodes
STEPS = 127  # int8 integers are -127 to 127


def several(columns: str | None) -> tuple[str, ...]:
    """Return the columns that `A+B` names."""
    return tuple(columns.split(SUM)) if columns else ()


class FeatureKind(StrEnum):
    """What an extractor gives for a picture."""

    VECTOR = "vector"
    REGIONS = "regions"
    CLASSES = "classes"


class Storage(StrEnum):
    """How a vector's values are stored; `int8`: each vector has a scale, and a value is scale x integer."""

    FLOAT16 = "float16"
    FLOAT32 = "float32"
    INT8 = "int8"


_WORDS = {
    FeatureKind.VECTOR: "{} {} values",
    FeatureKind.REGIONS: "regions: box, label, score, {} float16 values",
    FeatureKind.CLASSES: "likeliest classes",
}
_MEANINGS = {
    FeatureKind.VECTOR: "{} vector of the image",
    FeatureKind.REGIONS: "{} regions of the image, surest first",
    FeatureKind.CLASSES: "likeliest classes of the image by {}, likeliest first",
}
_PREFIXES = {FeatureKind.VECTOR: FEATURE_PREFIX, FeatureKind.REGIONS: "regions.", FeatureKind.CLASSES: "classes."}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FeatureColumn:
    """A feature column of the images or the documents of a data set version.

    Attributes:
        name: the extractor's.
        kind: vector, regions or classes.
        dimensions: of a vector, or of a region's vector; 0 for classes.
        storage: of vectors (a region's vector is float16 whatever this says).
        fingerprint: of the extractor; empty for vectors that the source brought.
    """

    name: str
    kind: FeatureKind = FeatureKind.VECTOR
    dimensions: int
    storage: Storage = Storage.FLOAT16
    fingerprint: str = ""

    @property
    def column(self) -> str:
        """Return the column's name in the table: `features.<name>`, `regions.<name>` or `classes.<name>`."""
        return _PREFIXES[self.kind] + self.name

    @property
    def type(self) -> pa.DataType:
        """Return the Arrow type of one image's, or one sentence's, value."""
        if self.kind is FeatureKind.REGIONS:
            return pa.list_(region_type(self.dimensions))
        return stored_vector_type(self.dimensions, self.storage) if self.kind is FeatureKind.VECTOR else _CLASSES

    @property
    def unit(self) -> str | None:
        is_scaled = self.kind is FeatureKind.VECTOR and self.storage is Storage.INT8
        return "a value is scale x integer" if is_scaled else None

    def describe(self) -> str:
        """Return the column in words: `1280 float16 values`."""
        return _WORDS[self.kind].format(self.dimensions, self.storage)


def image_fields(columns: Iterable[FeatureColumn]) -> list[pa.Field]:
    """Return the feature columns of an images part, sorted by name."""
    return [column(c.column, c.type, _MEANINGS[c.kind].format(c.name), unit=c.unit) for c in sorted(columns)]


def sentence_fields(columns: Iterable[FeatureColumn]) -> list[pa.Field]:
    """Return the feature columns of a documents part, sorted by name: a vector per sentence."""
    return [
        column(c.column, pa.list_(c.type), f"one {c.name} vector per sentence, in order", unit=c.unit)
        for c in sorted(columns)
    ]


def stored_vector_type(dimensions: int, storage: Storage) -> pa.DataType:
    """Return the type of one vector in a storage."""
    if storage is not Storage.INT8:
        return pa.list_(pa.type_for_alias(storage.value), dimensions)
    return pa.struct(
        [
            column("scale", pa.float32(), "what the integers are multiplied with"),
            column("values", pa.list_(pa.int8(), dimensions), "integers, -127 to 127"),
        ]
    )


def region_type(dimensions: int) -> pa.DataType:
    """Return the type of one region."""
    return pa.struct(
        [
            column("box", pa.list_(pa.float32(), 4), "left, top, right, bottom", unit="share of width, height"),
            column("label", pa.string(), "likeliest class of the region"),
            column("score", pa.float32(), "how sure the extractor is", unit="0 to 1"),
            column("vector", pa.list_(pa.float16(), dimensions), "feature vector of the region"),
        ]
    )


_CLASSES = pa.list_(
    pa.struct(
        [
            column("label", pa.string(), "class"),
            column("probability", pa.float32(), "of the class", unit="0 to 1"),
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionArrays:
    """Regions of N images: rows `offsets[i]:offsets[i + 1]` are those of image i.

    Attributes:
        offsets: N + 1, int64.
        boxes: R x 4 (left, top, right, bottom), shares of width and height, float32.
        labels: R class names.
        scores: R, float32.
        vectors: R x d, float16.
    """

    offsets: Int64
    boxes: Float32
    labels: Sequence[str]
    scores: Float32
    vectors: npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArrays:
    """Likeliest classes of N images: rows `offsets[i]:offsets[i + 1]` are those of image i."""

    offsets: Int64
    labels: Sequence[str]
    probabilities: Float32


def vectors_to_column(matrix: npt.NDArray[np.floating], storage: Storage) -> pa.Array:
    """Return the rows of an N x d matrix as a column of `stored_vector_type(d, storage)`.

    A contiguous matrix that has the storage's type is not copied.

    Raises:
        IntegrityError: a value is not finite in that storage (`storable` says which rows are).
    """
    stored = _stored(matrix, storage)
    if not np.isfinite(stored).all():
        raise IntegrityError(f"a vector has a value that is not finite as {storage}")
    kind = stored_vector_type(matrix.shape[1], storage)
    if storage is not Storage.INT8:
        return pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), type=kind)
    scales, integers = quantise(stored)
    fields = [kind.field(position) for position in range(kind.num_fields)]
    values = pa.FixedSizeListArray.from_arrays(pa.array(integers.reshape(-1)), type=fields[1].type)
    return pa.StructArray.from_arrays([pa.array(scales), values], fields=fields)


def column_to_vectors(column: pa.Array | pa.ChunkedArray, *, must_be_finite: bool = True) -> Stored:
    """Return a column of vectors, in whichever storage, as an N x d matrix: float16 as such, else float32.

    The matrix may be read-only: of a column in one chunk it is the column's own memory, but for int8.

    Raises:
        IntegrityError: a vector or a value is null, or not finite, unless the latter is the caller's to find.
    """
    array = _whole(_one_chunk(column))
    if pa.types.is_struct(array.type):
        scales, integers = array.flatten()  # in the order of `stored_vector_type`
        vectors: Stored = _values(scales)[:, None] * _matrix(integers).astype(np.float32)
    else:
        vectors = _matrix(array)
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken) and must_be_finite:
        raise IntegrityError(f"{len(broken)} vectors are not finite, the first is number {broken[0]}")
    return vectors


def storable(matrix: npt.NDArray[np.floating], storage: Storage) -> npt.NDArray[np.bool_]:
    """Return for each row of an N x d matrix whether every value is finite in a storage (float16: +-65504)."""
    return np.asarray(np.isfinite(_stored(matrix, storage)).all(axis=1))


def _stored(matrix: npt.NDArray[np.floating], storage: Storage) -> Stored:
    """Return a matrix as float16, or as float32 for the other storages; what is too large becomes infinite."""
    kind: Any = np.float16 if storage is Storage.FLOAT16 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(matrix, kind)


def quantise(matrix: npt.NDArray[np.floating]) -> tuple[Float32, npt.NDArray[np.int8]]:
    """Return N scales (float32) and N x d integers (int8): a value is about scale x integer.

    A row's largest value in size becomes 127 or -127; a row of zeros has the scale 0.
    """
    values = np.asarray(matrix, np.float32)
    scales = (np.abs(values).max(axis=1, initial=0) / STEPS).astype(np.float32)
    steps = values / np.where(scales > 0, scales, 1)[:, None]
    return scales, np.clip(np.rint(steps), -STEPS, STEPS).astype(np.int8)


def column_to_regions(column: pa.Array | pa.ChunkedArray) -> RegionArrays:
    """Return the regions of a column of lists of `region_type`; equal labels are one string.

    Raises:
        IntegrityError: a list, a field or a value is null.
    """
    offsets, rows = _lists(column)
    boxes, labels, scores, vectors = rows.flatten()
    return RegionArrays(
        offsets=offsets,
        boxes=_matrix(boxes),
        labels=_strings(labels),
        scores=_values(scores),
        vectors=_matrix(vectors),
    )


def column_to_classes(column: pa.Array | pa.ChunkedArray) -> ClassArrays:
    """Return the classes of a column of lists of labels with probabilities; equal labels are one string.

    Raises:
        IntegrityError: a list, a field or a value is null.
    """
    offsets, rows = _lists(column)
    labels, probabilities = rows.flatten()
    return ClassArrays(offsets=offsets, labels=_strings(labels), probabilities=_values(probabilities))


def _lists(column: pa.Array | pa.ChunkedArray) -> tuple[Int64, pa.Array]:
    """Return the N + 1 offsets of a column of lists, from 0, and the rows of all lists."""
    array = _whole(_one_chunk(column))
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], _whole(array.values.slice(offsets[0], offsets[-1] - offsets[0]))


def _strings(column: pa.Array) -> list[str]:
    """Return a column's strings, equal ones being one object (an image's labels are few words many times)."""
    encoded = _whole(column).dictionary_encode()
    words = encoded.dictionary.to_pylist()
    return [words[index] for index in encoded.indices.to_numpy()]


def _matrix(array: pa.Array) -> npt.NDArray[Any]:
    """Return a column of fixed-size lists as a matrix."""
    return _values(_whole(array).flatten()).reshape(len(array), array.type.list_size)


def _values(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = _whole(array).to_numpy(zero_copy_only=True)
    return values


def _whole(array: pa.Array) -> pa.Array:
    if array.null_count:
        raise IntegrityError(f"expected no nulls, found {array.null_count} nulls of {len(array)} values")
    return array


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
