"""FEATURES: what a feature column is called, of which kind it is, and the Arrow type of its values.

    features.<name>   one vector            float16, float32, or int8 values with a scale of their own
    regions.<name>    regions of an image   box, label, score, float16 vector
    classes.<name>    likeliest classes     label, probability

A manifest lists a version's columns; the schemas of the images and documents parts are made from the same list. How
values become Arrow arrays and back is in `feature_arrays.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from schemas.tables import FEATURE_PREFIX, column


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
