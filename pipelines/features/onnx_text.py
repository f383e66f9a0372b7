"""Sentence vectors from a user's own text tower: with the image tower of the same model, a frozen joint embedding.

One text a run, on one thread: a text's vector depends on that text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import tokenizers

from pipelines.features.onnx_session import OnnxNetwork, unit_length
from pipelines.features.onnx_sidecars import OnnxFiles, Pooling, TextSidecar
from pipelines.features.values import Compute, Matrix
from pipelines.features.weights import digest_of
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.versions import fingerprint

Ids = npt.NDArray[np.int64]  # T


class OnnxText:
    """One vector a text."""

    def __init__(self, files: OnnxFiles, sidecar: TextSidecar, compute: Compute) -> None:
        self.name = files.name
        self._sidecar = sidecar
        self._network = OnnxNetwork(files.name, files.network, compute)
        self._tokenizer_path = files.companion(sidecar.tokenizer)

    @cached_property
    def dimensions(self) -> int:
        """The length of a vector, tried out on a word."""
        return len(self._vector("a"))

    def fingerprint(self) -> str:
        return fingerprint(
            {
                "sidecar": resolve(self._sidecar),
                "tokenizer": digest_of(self._tokenizer_path),
                "tokenizers": tokenizers.__version__,
                **self._network.describe(),
            }
        )

    def extract(self, texts: Sequence[str]) -> Matrix:
        """Return one vector per text, N x d in order; a text without a token has zeros."""
        vectors = list(self._network.pool.map(self._vector, texts))
        return np.stack(vectors) if vectors else np.empty((0, self.dimensions), np.float32)

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        encoding = self._tokenizer.encode(text)
        ids, mask = np.asarray(encoding.ids, np.int64), np.asarray(encoding.attention_mask, np.int64)
        if not mask.any():
            return np.zeros(self.dimensions, np.float32)
        output = self._network.output(self._sidecar.output)
        found = self._network.run(self._inputs(ids, mask), [output])[0][0].astype(np.float32)
        vector = self._pooled(found, mask, output)
        return unit_length(vector) if self._sidecar.normalise else vector

    def _inputs(self, ids: Ids, mask: Ids) -> dict[str, npt.NDArray[np.generic]]:
        """Return the network's inputs, each 1 x T and of the type that it asks for."""
        given = {self._sidecar.ids: ids, self._sidecar.mask: mask, self._sidecar.types: np.zeros_like(ids)}
        types = {each.name: each.type for each in self._network.session.get_inputs()}
        short = {name for name, kind in types.items() if kind == "tensor(int32)"}
        return {name: v[None].astype(np.int32 if name in short else np.int64) for name, v in given.items() if name}

    def _pooled(self, found: npt.NDArray[np.float32], mask: Ids, output: str) -> npt.NDArray[np.float32]:
        is_per_token = found.ndim == 2 and len(found) == len(mask)
        if is_per_token == (self._sidecar.pooling is Pooling.NONE) or found.ndim > 2:
            raise ConfigError(
                f"{self._network.path}: output {output} gives {' x '.join(map(str, found.shape))} values a text: "
                f"not what pooling = {self._sidecar.pooling} in its sidecar needs"
            )
        if self._sidecar.pooling is Pooling.NONE:
            return found
        tokens = found[mask == 1]
        if self._sidecar.pooling is Pooling.MEAN:
            mean: npt.NDArray[np.float32] = tokens.mean(axis=0)
            return mean
        token: npt.NDArray[np.float32] = tokens[0 if self._sidecar.pooling is Pooling.FIRST else -1]
        return token

    @cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer_path))
        except Exception as error:
            raise ConfigError(f"{self._tokenizer_path}: no tokenizer: {str(error).partition(chr(10))[0]}") from error
        tokenizer.enable_truncation(self._sidecar.max_tokens)
        tokenizer.no_padding()
        if self._sidecar.pad_to_max:
            tokenizer.enable_padding(length=self._sidecar.max_tokens, pad_id=self._sidecar.pad_id)
        return tokenizer
