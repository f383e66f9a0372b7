"""Computing what is missing: of some pictures or a document, the features that the cache does not hold yet.

Plain functions, called by the transforms. A picture that an extractor rejects, or whose value cannot be stored, is
reported with its reason; the others of its batch have theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.features.cache import FeatureCache, Kept, at_once, texts_key
from pipelines.features.extractors import ImageExtractor, SentenceExtractor
from pipelines.features.values import Classes, Regions, Rejected
from pipelines.images.store import ImageStore
from schemas.documents import Document
from schemas.errors import IntegrityError
from schemas.failures import Failure, Reason, Stage
from schemas.feature_arrays import storable
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.images import Image


@dataclass(frozen=True, slots=True)
class ImageWork:
    """An extractor with its column and its cache, in one worker process."""

    column: FeatureColumn
    extractor: ImageExtractor
    cache: FeatureCache


@dataclass(frozen=True, slots=True)
class SentenceWork:
    """An extractor with its column and its cache, in one worker process."""

    column: FeatureColumn
    extractor: SentenceExtractor
    cache: FeatureCache


def fill_images(images: Sequence[Image], work: ImageWork, store: ImageStore) -> list[Rejected | None]:
    """Put into the cache what it lacks of these images; return, for each, why it has no value, or None.

    Args:
        images: whose pictures are in the store.
        work: which extractor.
        store: where the pictures are.

    Raises:
        IntegrityError: the extractor gave something else than its column says.
    """
    values = dict(zip(images, work.cache.find_all([image.hash for image in images]), strict=True))
    missing = [image for image, value in values.items() if value is None]
    if missing:
        pictures = at_once(store.read, [image.hash for image in missing])
        computed = list(zip(missing, work.extractor.extract(pictures), strict=True))
        at_once(lambda pair: work.cache.write(pair[0].hash, pair[1]), computed)
        values |= dict(computed)
    return [problem_of(values[image], work.column) for image in images]


def fill_sentences(document: Document, work: SentenceWork) -> None:
    """Put the vectors of a document's sentences into the cache, unless they are there.

    Raises:
        IntegrityError: the extractor gave a value that cannot be stored.
    """
    texts = [sentence.text for sentence in document.sentences]
    key = texts_key(texts)
    if work.cache.find(key) is not None:
        return
    vectors = work.extractor.extract(texts)
    if not storable(vectors, work.column.storage).all():
        raise IntegrityError(
            f"extractor {work.column.name}: a sentence of {document.id} has values that are not finite"
        )
    work.cache.write(key, vectors)


def feature_failure(record_id: str, message: str) -> Failure:
    """Return the failure row of an image without a feature."""
    return Failure(Stage.FEATURES, record_id, Reason.FEATURE_MISSING, message)


def problem_of(value: Kept | None, column: FeatureColumn) -> Rejected | None:
    """Return why a value cannot be stored in its column, or None where it can."""
    if isinstance(value, Rejected):
        return value
    if isinstance(value, Regions):
        _require(column, FeatureKind.REGIONS, value.vectors.shape == (len(value.labels), column.dimensions))
        parts, storage = [value.boxes, value.scores[:, None]], Storage.FLOAT32
        is_sound = storable(value.vectors, Storage.FLOAT16).all() and all(storable(p, storage).all() for p in parts)
    elif isinstance(value, Classes):
        _require(column, FeatureKind.CLASSES, value.probabilities.shape == (len(value.labels),))
        is_sound = np.isfinite(value.probabilities).all()
    else:
        _require(column, FeatureKind.VECTOR, value is not None and value.shape == (column.dimensions,))
        is_sound = value is not None and storable(value[None], column.storage).all()
    return None if is_sound else Rejected(f"a value is not finite as {column.storage}, or too large for it")


def _require(column: FeatureColumn, kind: FeatureKind, has_shape: bool) -> None:
    if column.kind is not kind or not has_shape:
        raise IntegrityError(
            f"extractor {column.name}: expected {column.describe()}, found a value of {kind} of another shape"
        )
