"""The zero-shot baseline: vectors of a joint text-image model (CLIP-style) that the user supplies as two columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schemas.errors import UsageError
from training.baselines.cosines import document_vectors
from training.data.documents import DocumentSet
from training.model import EmbeddedDocument

Float32 = npt.NDArray[np.float32]


def joint_embedding_scores(documents: DocumentSet) -> tuple[Float32, ...]:
    """Return each document's n x m cosines of its sentence and image vectors as they are; see `joint_embeddings`."""
    return tuple(document.similarities() for document in joint_embeddings(documents))


def joint_embeddings(documents: DocumentSet) -> tuple[EmbeddedDocument, ...]:
    """Return each document's sentence and image vectors as unit vectors; their products are the zero-shot similarities.

    Raises:
        UsageError: there are no sentence vectors, or the two columns are of different sizes.
    """
    if documents.sentence_vectors is None:
        raise UsageError(
            "zero-shot scores need two columns of one joint model: sentence vectors and image vectors; "
            "found no sentence vectors"
        )
    text_size, image_size = documents.sentence_vectors.shape[1], documents.image_bank.shape[1]
    if text_size != image_size:
        raise UsageError(
            f"sentence vectors have {text_size} numbers, image vectors {image_size}: they are not of one joint model; "
            "name its two columns"
        )
    return document_vectors(documents, documents.sentence_vectors, documents.image_bank)
