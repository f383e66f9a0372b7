"""The random baseline: independent uniform scores, from a stream of seed and document id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from training.data.streams import stream


def random_scores(document: str, sentences: int, images: int, *, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return an n x m matrix in [0, 1), the same for a document whatever was drawn before."""
    return stream("random baseline", seed, document).random((sentences, images), dtype=np.float32)
