"""Extractors from a network of the user's own: an `.onnx` file and, beside it, a JSON file that describes it.

    {"kind": "vector", "output": "embedding", "mean": [123.7, 116.3, 103.5], "deviation": [58.4, 57.1, 57.4]}
    {"kind": "text", "output": "embedding", "tokenizer": "tokenizer.json", "max_tokens": 77, "pad_to_max": true}

The weights `NAME=FILE.onnx` make the extractor NAME. Keys that are absent have the defaults below; an unknown key, or a
value of the wrong type, is an error. Files it names lie beside the network, or are weights called NAME/FILE.

A network computes in the precision it was exported in. On a GPU vectors come from batches, where the network's first
axis is of any length.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tokenizers

from pipelines.features.pixels import (
    GPU_BATCH,
    Graph,
    PictureExtractor,
    Pixels,
    Preprocessing,
    Square,
    cores,
    fixed_pixels,
)
from pipelines.features.values import Float32, Matrix, Row, Vector, feature_column, unit_length
from pipelines.features.weights import WeightFile, digest_of, weight_of
from pipelines.settings import FeaturesConfig
from schemas.configs import NonNegativeInt, PositiveInt, Settings, require, resolve, restore
from schemas.features import FeatureColumn
from schemas.messages import ConfigError, NotFoundError

_FIXED_TEXT = "a photograph of two red houses by the sea"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSidecar(Preprocessing):
    """The description of a network from pictures, N x 3 x size x size, to vectors, N x d, beside the preprocessing.

    Attributes:
        input: name of its input; "" where it has one.
        output: name of its output; "" where it has one.
        normalise: whether vectors are scaled to length 1, as a joint embedding's are.
    """

    kind: Literal["vector"] = "vector"
    input: str = ""
    output: str = ""
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (255.0, 255.0, 255.0)
    normalise: bool = False

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        is_scale = len(self.deviation) == 3 and all(value > 0 for value in self.deviation)
        is_cut = self.fit != "centre" or self.shorter_side_px >= self.size_px
        for name, holds, rule in (
            ("mean", len(self.mean) == 3, "three values, of red, green and blue"),
            ("deviation", is_scale, "three values above 0, of red, green and blue"),
            ("shorter_side_px", is_cut, f"at least size_px, {self.size_px}"),
        ):
            require(holds, field=name, value=getattr(self, name), rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSidecar(Settings):
    """A network from token numbers, 1 x T, to a vector of the text, or to one of each token.

    Attributes:
        ids: name of the input of token numbers.
        mask: name of the input that is 1 where a token is and 0 where padding is; "" where there is none.
        types: name of an input of zeros (BERT's segments); "" where there is none.
        output: name of its output; "" where it has one.
        tokenizer: file of a tokenizer of the `tokenizers` library.
        max_tokens: a longer text is cut.
        pad_to_max: whether every text is padded to `max_tokens` with `pad_id`, as CLIP's text tower wants.
        pooling: how vectors of tokens become one of the text; `none` where the network gives that itself.
        normalise: whether vectors are scaled to length 1.
    """

    kind: Literal["text"] = "text"
    ids: str = "input_ids"
    mask: str = ""
    types: str = ""
    output: str = ""
    tokenizer: str = "tokenizer.json"
    max_tokens: PositiveInt = 77
    pad_to_max: bool = False
    pad_id: NonNegativeInt = 0
    pooling: Literal["none", "mean", "first", "last"] = "none"
    normalise: bool = False


Sidecar = VectorSidecar | TextSidecar
_KINDS: Mapping[str, type[Sidecar]] = {"vector": VectorSidecar, "text": TextSidecar}


class OnnxNetwork(Graph):
    """A user's network: its sidecar, the files that go with it, and the graph."""

    def __init__(self, name: str, config: FeaturesConfig, weights: Mapping[str, WeightFile]) -> None:
        """Read the sidecar.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is no JSON object with a known `kind`, or one of its values breaks a rule; the message
                names the file. A GPU is asked for, and this onnxruntime has none.
        """
        super().__init__(name, weight_of(name, weights, what="a network in an .onnx file").local(), config)
        self._name, self._config, self._weights = name, config, weights
        self.sidecar = self._read_sidecar()

    def companion(self, file: str) -> Path:
        """Return the path of a file that goes with the network.

        Raises:
            NotFoundError: there is none; the message says which path was tried.
        """
        key, path = f"{self._name}/{file}", self.path.with_name(file)
        if key in self._weights:
            return self._weights[key].local().path
        if not path.is_file():
            raise NotFoundError(f"features.weights: {self._name}: there is no {path}, and no weight {key!r}")
        return path

    def _read_sidecar(self) -> Sidecar:
        path = self.companion(self.path.with_suffix(".json").name)
        try:
            values: Any = json.loads(path.read_bytes())
            kind = _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
            if kind is None:
                raise ConfigError(f"expected an object whose `kind` is one of {', '.join(_KINDS)}")
            return restore(kind, values)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: expected JSON: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None  # one line that names the file, also for a worker

    def column(self, outputs: Sequence[npt.NDArray[Any]], **extra: object) -> FeatureColumn:
        """Return the column.

        Args:
            outputs: for the fixed picture or text; the last axis of the last one is the length of a vector.
            extra: what values depend on beside the network and its sidecar.
        """
        depends_on = {"sidecar": resolve(self.sidecar), **self.identity(outputs), **extra}
        return feature_column(self._name, self._config, outputs[-1].shape[-1], depends_on)


class OnnxVectors(PictureExtractor):
    """One vector a picture: the network's output, flattened."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        """Make the extractor that the sidecar of `network` describes.

        Raises:
            ConfigError: the sidecar is wrong, or describes a text tower.
        """
        self.network = OnnxNetwork(network, config, weights)
        if not isinstance(self.network.sidecar, VectorSidecar):
            problem = "its sidecar describes a text tower; name it in features.sentences"
            raise ConfigError(f"features.images = {network!r}: {problem}")
        self._sidecar = self.network.sidecar
        super().__init__(config, self._sidecar)

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column."""
        given = self.network.named(self._sidecar.input, self.network.session.get_inputs())
        self.batch = GPU_BATCH if self.network.is_gpu and not isinstance(given.shape[0], int) else 1
        return (self.network.column([self._vectors(fixed_pixels(self._sidecar.size_px))]),)

    def rows(self, squares: Sequence[Square], pixels: Pixels) -> list[Row]:
        """Return the vectors of N x H x W x 3 pixels."""
        return [(vector,) for vector in self._vectors(pixels)]

    def _vectors(self, pixels: Pixels) -> Matrix:
        sidecar = self._sidecar
        found = self.network.run({sidecar.input: sidecar.values(pixels)}, [sidecar.output])[0].astype(np.float32)
        if found.shape[0] != len(pixels) or found.ndim < 2 or found.size != len(pixels) * found.shape[1]:
            raise ConfigError(
                f"{self.network.path}: output {sidecar.output}: expected {len(pixels)} x d values, found "
                f"{' x '.join(map(str, found.shape))}: name an output behind the pooling"
            )
        vectors = found.reshape(len(pixels), -1)
        return unit_length(vectors) if sidecar.normalise else vectors


class OnnxText:
    """Sentence vectors from a text tower: with the image tower of its model, a frozen joint embedding."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        """Make the extractor that the sidecar of `network` describes.

        Raises:
            ConfigError: the sidecar is wrong, or describes a network that reads pictures.
        """
        self.network = OnnxNetwork(network, config, weights)
        if not isinstance(self.network.sidecar, TextSidecar):
            raise ConfigError(f"features.sentences = {network!r}: its sidecar describes a network that reads pictures")
        self.sidecar = self.network.sidecar
        self._pool = ThreadPoolExecutor(config.threads or cores())
        self._tokenizer_path = self.network.companion(self.sidecar.tokenizer)

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column."""
        tokenizer = {"file": digest_of(self._tokenizer_path), "tokenizers": tokenizers.__version__}
        return (self.network.column([self._vector(_FIXED_TEXT)], tokenizer=tokenizer),)

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
