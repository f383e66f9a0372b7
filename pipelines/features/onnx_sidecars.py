"""What a user says of a network of their own: the small JSON file beside an `.onnx` file, of the same stem.

    {"kind": "vector", "output": "embedding", "mean": [123.7, 116.3, 103.5], "deviation": [58.4, 57.1, 57.4]}
    {"kind": "detector", "classes": "classes.txt", "size_px": 640, "box_unit": "pixel"}
    {"kind": "text", "output": "embedding", "tokenizer": "tokenizer.json", "max_tokens": 77, "pad_to_max": true}

Keys that are absent have the defaults below; an unknown key, or a value of the wrong type, is an error. Files it names
lie beside the network, or are weights called NAME/FILE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pipelines.features.pixels import Fit, Preprocessing
from pipelines.features.weights import WeightFile, weight_of
from schemas.configs import require, restore
from schemas.errors import ConfigError, NotFoundError

NETWORK_SUFFIX = ".onnx"
_SIDECAR_SUFFIX = ".json"


class Channels(StrEnum):
    RGB = "rgb"
    BGR = "bgr"


class BoxUnit(StrEnum):
    """Of a detector's boxes: shares 0..1 of its input, or pixels of it."""

    SHARE = "share"
    PIXEL = "pixel"


class Pooling(StrEnum):
    """How vectors of tokens become one of the text; `none` where the network gives that itself."""

    NONE = "none"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSidecar:
    """A network from pictures, N x 3 x size x size, to vectors, N x d.

    Attributes:
        input: name of its input; "" where it has one.
        output: name of its output; "" where it has one.
        fit: `centre` or `squash`, see `pixels.Fit`.
        mean: what is subtracted from red, green and blue values 0..255; then they are divided by `deviation`.
        channels: the order in which the network wants them.
        normalise: whether vectors are scaled to length 1, as a joint embedding's are.
    """

    kind: Literal["vector"] = "vector"
    input: str = ""
    output: str = ""
    size_px: int = 224
    fit: Fit = Fit.CENTRE
    shorter_side_px: int = 256
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (255.0, 255.0, 255.0)
    channels: Channels = Channels.RGB
    normalise: bool = False

    def __post_init__(self) -> None:
        _check_pixels(self.size_px, self.mean, self.deviation)
        rule = f"at least size_px, {self.size_px}"
        require(self.shorter_side_px >= self.size_px, field="shorter_side_px", value=self.shorter_side_px, rule=rule)

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(
            fit=self.fit,
            size_px=self.size_px,
            shorter_side_px=self.shorter_side_px,
            mean=_triple(self.mean),
            deviation=_triple(self.deviation),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSidecar:
    """A network from one picture, 1 x 3 x size x size, all of it squashed, to R regions, overlaps already removed.

    Attributes:
        boxes: name of the output R x 4: left, top, right, bottom.
        scores: name of the output R, in 0..1.
        labels: name of the output R: places in the list of classes.
        vectors: name of the output R x d.
        classes: file of class names, one a line; a network with a background counts it.
        box_unit: see `BoxUnit`.
    """

    kind: Literal["detector"] = "detector"
    input: str = ""
    boxes: str = "boxes"
    scores: str = "scores"
    labels: str = "labels"
    vectors: str = "vectors"
    classes: str = "classes.txt"
    box_unit: BoxUnit = BoxUnit.SHARE
    size_px: int = 640
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (255.0, 255.0, 255.0)
    channels: Channels = Channels.RGB

    def __post_init__(self) -> None:
        _check_pixels(self.size_px, self.mean, self.deviation)

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(
            fit=Fit.SQUASH, size_px=self.size_px, mean=_triple(self.mean), deviation=_triple(self.deviation)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSidecar:
    """A network from token numbers, 1 x T, to a vector of the text, or to one of each token.

    Attributes:
        ids: name of the input of token numbers.
        mask: name of the input that is 1 where a token is and 0 where padding is; "" where there is none.
        types: name of an input of zeros (BERT's segments); "" where there is none.
        output: name of its output; "" where it has one.
        tokenizer: file of a tokenizer of the `tokenizers` library.
        max_tokens: a longer text is cut.
        pad_to_max: whether every text is padded to `max_tokens` with `pad_id`, as CLIP's text tower wants.
        normalise: whether vectors are scaled to length 1.
    """

    kind: Literal["text"] = "text"
    ids: str = "input_ids"
    mask: str = ""
    types: str = ""
    output: str = ""
    tokenizer: str = "tokenizer.json"
    max_tokens: int = 77
    pad_to_max: bool = False
    pad_id: int = 0
    pooling: Pooling = Pooling.NONE
    normalise: bool = False

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, field="max_tokens", value=self.max_tokens, rule="at least 1")
        require(self.pad_id >= 0, field="pad_id", value=self.pad_id, rule="at least 0")


Sidecar = VectorSidecar | DetectorSidecar | TextSidecar
_KINDS: Mapping[str, type[Sidecar]] = {"vector": VectorSidecar, "detector": DetectorSidecar, "text": TextSidecar}


@dataclass(frozen=True, slots=True)
class OnnxFiles:
    """A user's network: its name, its file, and the files that go with it."""

    name: str
    weights: Mapping[str, WeightFile]

    @property
    def network(self) -> Path:
        weight = weight_of(self.name, self.weights, what=f"a network in an {NETWORK_SUFFIX} file")
        path = weight.path()
        require(path.suffix == NETWORK_SUFFIX, field="features.weights", value=str(path), rule="expected an .onnx file")
        return path

    def companion(self, file: str) -> Path:
        """Return the path of a file that goes with the network.

        Raises:
            NotFoundError: there is none; the message says where it is looked for.
        """
        key = f"{self.name}/{file}"
        if key in self.weights:
            return self.weights[key].path()
        path = self.network.with_name(file)
        if not path.is_file():
            raise NotFoundError(f"features.weights: {self.name}: there is no {path}, and no weight {key!r}")
        return path

    def sidecar(self) -> Sidecar:
        """Return what the JSON file says.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is no JSON object with a known `kind`, or one of its values breaks a rule.
        """
        path = self.companion(self.network.with_suffix(_SIDECAR_SUFFIX).name)
        try:
            values: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path}: expected JSON: {error}") from error
        kind = _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
        if kind is None:
            raise ConfigError(f"{path}: expected an object whose `kind` is one of {', '.join(_KINDS)}")
        try:
            return restore(kind, values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


def _check_pixels(size_px: int, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
    require(size_px >= 1, field="size_px", value=size_px, rule="at least 1")
    require(len(mean) == 3, field="mean", value=mean, rule="three values, of red, green and blue")
    is_scale = len(deviation) == 3 and all(value > 0 for value in deviation)
    require(is_scale, field="deviation", value=deviation, rule="three values above 0, of red, green and blue")


def _triple(values: tuple[float, ...]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue
