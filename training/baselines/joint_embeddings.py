"""The zero-shot baseline: vectors of a joint text-image model (CLIP-style) that the user supplies as two columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import UsageError
from training.data.documents import DocumentSet

Float32 = npt.NDArray[np.float32]


def joint_embedding_scores(documents: DocumentSet) -> tuple[Float32, ...]:
    """Return each document's n x m cosines of its sentence and image vectors as they are.

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
    texts, images = _unit(documents.sentence_vectors), _unit(documents.image_bank)
    return tuple(
        texts[slice(*documents.sentence_offsets[d : d + 2])]
        @ images[documents.image_rows[slice(*documents.image_offsets[d : d + 2])]].T
        for d in range(len(documents))
    )


def _unit(rows: npt.NDArray[np.floating[Any]]) -> Float32:
    wide = rows.astype(np.float32)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)
