"""Sentence vectors from a user's own text tower: with the image tower of the same model, a frozen joint embedding.

One text a run, on one thread: a text's vector depends on that text alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import tokenizers

from pipelines.features.onnx import OnnxNetwork, unit_length
from pipelines.features.onnx_sidecars import OnnxFiles, TextSidecar
from pipelines.features.values import Float32, Row, Vector
from pipelines.features.weights import WeightFile, digest_of
from pipelines.settings import FeaturesConfig
from schemas.errors import ConfigError
from schemas.features import FeatureColumn


class OnnxText:
    """One vector a text."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        """Make the extractor that the sidecar of `network` describes.

        Raises:
            ConfigError: the sidecar is wrong, or describes a network that reads pictures.
        """
        files = OnnxFiles(network, weights)
        if not isinstance(files.sidecar, TextSidecar):
            raise ConfigError(f"features.sentences = {network!r}: its sidecar describes a network that reads pictures")
        self.sidecar, self.network = files.sidecar, OnnxNetwork(files, config)
        self._pool = ThreadPoolExecutor(max(config.threads, 1))
        self._tokenizer_path = files.companion(files.sidecar.tokenizer)

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column; the length of a vector is tried out on a word."""
        versions = {"tokenizer": digest_of(self._tokenizer_path), "tokenizers": tokenizers.__version__}
        return (self.network.column(len(self._vector("a")), versions),)

    def extract(self, documents: Sequence[Sequence[str]]) -> list[Row]:
        """Return one vector per text of each document, N x d in order; a text without a token has zeros."""
        found: list[Row] = []
        for texts in documents:
            matrix = np.zeros((len(texts), self.columns[0].dimensions), np.float32)
            for number, vector in enumerate(self._pool.map(self._vector, texts)):
                matrix[number] = vector
            found.append((matrix,))
        return found

    def _vector(self, text: str) -> Vector:
        encoding = self._tokenizer.encode(text)
        if not any(encoding.attention_mask):
            return np.zeros(1, np.float32)
        ids = np.array([encoding.ids, encoding.attention_mask, [0] * len(encoding.ids)])
        inputs = zip((self.sidecar.ids, self.sidecar.mask, self.sidecar.types), ids, strict=True)
        short = {each.name for each in self.network.session.get_inputs() if each.type == "tensor(int32)"}
        given = {name: row[None].astype(np.int32 if name in short else np.int64) for name, row in inputs if name}
        found = self.network.run(given, [self.sidecar.output])[0][0].astype(np.float32)
        vector = self._pooled(found, ids[1] == 1)
        return unit_length(vector) if self.sidecar.normalise else vector

    def _pooled(self, found: Float32, is_token: np.ndarray) -> Vector:
        pooling = self.sidecar.pooling
        is_per_token = found.ndim == 2 and len(found) == len(is_token)
        if is_per_token == (pooling == "none") or found.ndim > 2:
            raise ConfigError(
                f"{self.network.path}: output {self.sidecar.output!r} gives {' x '.join(map(str, found.shape))} "
                f"values a text: not what pooling = {pooling} in its sidecar needs"
            )
        if pooling == "none":
            return found
        tokens = found[is_token]
        vector: Vector = {"mean": tokens, "first": tokens[:1], "last": tokens[-1:]}[pooling].mean(axis=0)
        return vector

    @cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer_path))
        except Exception as error:
            raise ConfigError(f"{self._tokenizer_path}: no tokenizer: {str(error).partition(chr(10))[0]}") from error
        tokenizer.enable_truncation(self.sidecar.max_tokens)
        tokenizer.no_padding()
        if self.sidecar.pad_to_max:
            tokenizer.enable_padding(length=self.sidecar.max_tokens, pad_id=self.sidecar.pad_id)
        return tokenizer
