"""Cosines of given vectors of sentences and images, document by document: what the baselines score with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.documents import DocumentSet
from training.model import EmbeddedDocument, embedded

Float32 = npt.NDArray[np.float32]
Float = npt.NDArray[np.floating[Any]]


def document_cosines(documents: DocumentSet, texts: Float, images: Float) -> tuple[Float32, ...]:
    """Return each document's n x m cosines, of N x d sentence vectors and U x d vectors of the different images.

    A vector of length 0 has cosine 0 with every other.
    """
    return tuple(document.similarities() for document in document_vectors(documents, texts, images))


def document_vectors(documents: DocumentSet, texts: Float, images: Float) -> tuple[EmbeddedDocument, ...]:
    """Return each document's vectors at length 1 (or 0), of N x d of sentences and U x d of the different images."""
    unit_texts, unit_images = _unit(texts), _unit(images)
    return tuple(embedded(documents, unit_texts, unit_images))


def _unit(rows: Float) -> Float32:
    wide = rows.astype(np.float32)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)
