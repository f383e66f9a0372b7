"""The feature columns of a shard: values from the cache, or from the array a source brings, put into their storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pipelines.features.cache import Kept, texts_key
from pipelines.features.given import given_vectors, row_of
from pipelines.features.plan import FeaturePlan
from pipelines.features.values import Classes, Matrix, Regions
from schemas.documents import Document
from schemas.feature_arrays import (
    ClassArrays,
    RegionArrays,
    classes_to_column,
    regions_to_column,
    vectors_to_column,
)
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.images import Image


def image_column(column: FeatureColumn, images: Sequence[Image], plan: FeaturePlan) -> pa.Array:
    """Return a feature column of these images.

    Raises:
        BuildError: a feature that was put into the cache is gone.
    """
    if plan.given is not None and column.name == plan.given.name:
        given, rows = given_vectors(*plan.given), [row_of(str(image.source)) for image in images]
        is_half = column.storage is Storage.FLOAT16
        return vectors_to_column(given.rows(rows) if is_half else given.exact_rows(rows), column.storage)
    return values_to_column(plan.image_cache(column).read_all([image.hash for image in images]), column)


def values_to_column(values: Sequence[Kept], column: FeatureColumn) -> pa.Array:
    """Return pictures' values as the column's array; none of them is rejected."""
    if column.kind is FeatureKind.REGIONS:
        return regions_to_column(region_arrays(cast(Sequence[Regions], values), column.dimensions), column.dimensions)
    if column.kind is FeatureKind.CLASSES:
        return classes_to_column(class_arrays(cast(Sequence[Classes], values)))
    return vectors_to_column(_stacked(values, column.dimensions), column.storage)


def sentence_column(column: FeatureColumn, documents: Sequence[Document], plan: FeaturePlan) -> pa.Array:
    """Return a feature column of these documents: a list of vectors each; see `image_column`."""
    keys = [texts_key(sentence.text for sentence in document.sentences) for document in documents]
    matrices = plan.sentence_cache(column).read_all(keys)
    vectors = vectors_to_column(_stacked(matrices, column.dimensions), column.storage)
    offsets = _offsets([len(document.sentences) for document in documents])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors)


def region_arrays(values: Sequence[Regions], dimensions: int) -> RegionArrays:
    """Return the regions of several pictures as flat arrays."""
    return RegionArrays(
        offsets=_offsets([len(value.labels) for value in values]),
        boxes=np.concatenate([np.zeros((0, 4), np.float32), *(value.boxes for value in values)]),
        labels=[label for value in values for label in value.labels],
        scores=np.concatenate([np.zeros(0, np.float32), *(value.scores for value in values)]),
        vectors=np.concatenate(
            [np.zeros((0, dimensions), np.float16), *(value.vectors.astype(np.float16) for value in values)]
        ),
    )


def class_arrays(values: Sequence[Classes]) -> ClassArrays:
    """Return the classes of several pictures as flat arrays."""
    return ClassArrays(
        offsets=_offsets([len(value.labels) for value in values]),
        labels=[label for value in values for label in value.labels],
        probabilities=np.concatenate([np.zeros(0, np.float32), *(value.probabilities for value in values)]),
    )


def _stacked(values: Sequence[Kept], dimensions: int) -> Matrix:
    """Return vectors, or matrices of them, one after the other as N x d."""
    parts = [cast(Matrix, value).reshape(-1, dimensions) for value in values]
    return np.concatenate([np.zeros((0, dimensions), np.float32), *parts])


def _offsets(counts: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.cumsum([0, *counts], dtype=np.int64)
