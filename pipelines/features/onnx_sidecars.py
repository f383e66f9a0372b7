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
from pathlib import Path
from typing import Any, Literal

from pipelines.features.pixels import Preprocessing
from pipelines.features.weights import WeightFile, weight_of
from schemas.configs import require, restore
from schemas.errors import ConfigError, NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSidecar(Preprocessing):
    """What is said of a network that reads pictures, N x 3 x size x size, beside the preprocessing.

    Attributes:
        input: name of its input; "" where it has one.
        channels: the order in which the network wants them.
    """

    input: str = ""
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (255.0, 255.0, 255.0)
    channels: Literal["rgb", "bgr"] = "rgb"

    def __post_init__(self) -> None:
        is_scale = len(self.deviation) == 3 and all(value > 0 for value in self.deviation)
        is_cut = self.fit != "centre" or self.shorter_side_px >= self.size_px
        for name, holds, rule in (
            ("size_px", self.size_px >= 1, "at least 1"),
            ("mean", len(self.mean) == 3, "three values, of red, green and blue"),
            ("deviation", is_scale, "three values above 0, of red, green and blue"),
            ("shorter_side_px", is_cut, f"at least size_px, {self.size_px}"),
        ):
            require(holds, field=name, value=getattr(self, name), rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSidecar(ImageSidecar):
    """A network from pictures to vectors, N x d.

    Attributes:
        output: name of its output; "" where it has one.
        normalise: whether vectors are scaled to length 1, as a joint embedding's are.
    """

    kind: Literal["vector"] = "vector"
    output: str = ""
    normalise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSidecar(ImageSidecar):
    """A network from one picture, all of it squashed by default, to R regions, overlaps already removed.

    Attributes:
        boxes: name of the output R x 4: left, top, right, bottom.
        scores: name of the output R, in 0..1.
        labels: name of the output R: numbers of classes, from 0.
        vectors: name of the output R x d.
        classes: file of class names, one a line; a network with a background counts it.
        box_unit: of boxes: shares 0..1 of the input, or pixels of it.
    """

    kind: Literal["detector"] = "detector"
    boxes: str = "boxes"
    scores: str = "scores"
    labels: str = "labels"
    vectors: str = "vectors"
    classes: str = "classes.txt"
    box_unit: Literal["share", "pixel"] = "share"
    size_px: int = 640
    fit: Literal["centre", "squash", "whole"] = "squash"


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
        pooling: how vectors of tokens become one of the text; `none` where the network gives that itself.
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
    pooling: Literal["none", "mean", "first", "last"] = "none"
    normalise: bool = False

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, field="max_tokens", value=self.max_tokens, rule="at least 1")
        require(self.pad_id >= 0, field="pad_id", value=self.pad_id, rule="at least 0")


Sidecar = VectorSidecar | DetectorSidecar | TextSidecar
_KINDS: Mapping[str, type[Sidecar]] = {"vector": VectorSidecar, "detector": DetectorSidecar, "text": TextSidecar}


class OnnxFiles:
    """A user's network: its name, its file, and the files that go with it."""

    def __init__(self, name: str, weights: Mapping[str, WeightFile]) -> None:
        """Read the sidecar.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is no JSON object with a known `kind`, or one of its values breaks a rule; the message
                names the file.
        """
        self.name = name
        self.network = weight_of(name, weights, what="a network in an .onnx file").local()
        self._weights = weights
        self.sidecar = self._read_sidecar()

    def companion(self, file: str) -> Path:
        """Return the path of a file that goes with the network.

        Raises:
            NotFoundError: there is none; the message says which path was tried.
        """
        key = f"{self.name}/{file}"
        if key in self._weights:
            return self._weights[key].local().path
        path = self.network.path.with_name(file)
        if not path.is_file():
            raise NotFoundError(f"features.weights: {self.name}: there is no {path}, and no weight {key!r}")
        return path

    def _read_sidecar(self) -> Sidecar:
        path = self.companion(self.network.path.with_suffix(".json").name)
        try:
            values: Any = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: expected JSON: {error}") from error
        kind = _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
        if kind is None:
            raise ConfigError(f"{path}: expected an object whose `kind` is one of {', '.join(_KINDS)}")
        try:
            return restore(kind, values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None  # one line that names the file, also for a worker
