"""What a picture's classes are called, as a vector in the space of sentences: no picture and sentence need be paired.

Each class name is encoded as a sentence. A picture's vector is the sum of the names of its most probable classes, each
less the mean of all names, times the root of its probability; of length 1. Norouzi et al. 2014 (ConSE) weight by the
probability itself and do not centre: both were chosen by the rank of own pictures (`benchmarks/learning.py`).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.features.catalogue import Extractor, extractors
from pipelines.features.values import DOCUMENTS, Float32
from pipelines.features.weights import make_once
from pipelines.settings import FeaturesConfig
from schemas.features import NAMES_ENCODER
from schemas.versions import fingerprint

DIMENSIONS = 512
TOP = 20  # classes of a picture (Hessel 2019, 3.3: K in 1..20)


@dataclass
class ClassNames:
    """Names of a network's classes, in the order of its outputs.

    Attributes:
        names: C of them.
        config: of the features.
    """

    names: Sequence[str]
    config: FeaturesConfig

    @cached_property
    def identity(self) -> str:
        """Return the SHA-256 (hex) of what the vectors of names follow from."""
        names, encoder = list(self.names), self._encoder.columns[0].fingerprint
        return fingerprint({"names": names, "encoder": encoder, "value": "roots of 20 probabilities, centred names"})

    def vector(self, probabilities: Float32) -> Float32:
        """Return the vector of a picture with C probabilities."""
        order = np.argsort(-probabilities, kind="stable")[:TOP]
        found = np.sqrt(probabilities[order]).astype(np.float64) @ self._centred[order].astype(np.float64)
        length = np.linalg.norm(found)
        return (found / length if length else found).astype(np.float32)

    @cached_property
    def _encoder(self) -> Extractor:
        return extractors([NAMES_ENCODER], DOCUMENTS, self.config)[0]

    @cached_property
    def _centred(self) -> Float32:
        """C x 512: the names' vectors less their mean, kept on this machine; a thousand take seconds."""
        name = f"class-names-{self.identity[:16]}.npy"
        found: Float32 = np.load(io.BytesIO(make_once(name, self._made).read(name)))
        return found

    def _made(self) -> bytes:
        vectors, buffer = np.asarray(self._encoder.extract([list(self.names)])[0][0]), io.BytesIO()
        np.save(buffer, vectors - vectors.mean(axis=0))
        return buffer.getvalue()
