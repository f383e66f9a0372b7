"""Extractors from a network of the user's own: an `.onnx` file and, beside it, a JSON file that says what it is.

The weights `NAME=FILE.onnx` make the extractor NAME; `onnx_sidecars.py` says what stands in FILE.json. Text towers are
in `onnx_text.py`. On a CPU one picture a run, on one thread, so that its arithmetic does not depend on what else is
under way. On a GPU a network computes in the precision it was exported in, and vectors come from batches, where the
network's first axis is of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnxruntime

from pipelines.features.onnx_sidecars import DetectorSidecar, ImageSidecar, OnnxFiles, TextSidecar, VectorSidecar
from pipelines.features.pixels import PictureExtractor, Pixels, Square
from pipelines.features.values import Float32, Matrix, Regions, Rejected, Row, feature_column, kept_regions
from pipelines.features.weights import WeightFile, digest_of
from pipelines.settings import Device, FeaturesConfig
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.features import FeatureColumn, FeatureKind

_GPU, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_FATAL_ONLY = 4
_EXTERNAL_SUFFIX = ".data"  # beside a network too large for one file


class OnnxNetwork:
    """A network in onnxruntime, opened at the first use; its inputs and outputs are checked by name."""

    def __init__(self, files: OnnxFiles, config: FeaturesConfig) -> None:
        """Name the network of a file.

        Raises:
            ConfigError: a GPU is asked for, and this onnxruntime has none.
        """
        self._files, self._config = files, config
        self.path = files.network.path
        self.is_gpu = config.device is not Device.CPU and _GPU in onnxruntime.get_available_providers()
        if config.device is Device.CUDA and not self.is_gpu:
            raise ConfigError(
                f"features.device = cuda: {files.name}: onnxruntime finds no GPU here; install onnxruntime-gpu"
            )

    def column(
        self, dimensions: int, extra: Mapping[str, object], kind: FeatureKind = FeatureKind.VECTOR
    ) -> FeatureColumn:
        """Return the column; `extra` is what values depend on beside the network and its sidecar."""
        external = self.path.with_name(self.path.name + _EXTERNAL_SUFFIX)
        depends_on = {
            "sidecar": resolve(self._files.sidecar),
            "weights": self._files.network.sha256,
            "external weights": digest_of(external) if external.is_file() else "",
            "device": "cuda" if self.is_gpu else "cpu",
            "onnxruntime": onnxruntime.__version__,
            **extra,
        }
        return feature_column(self._files.name, self._config, dimensions, depends_on, kind)

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]) -> list[npt.NDArray[Any]]:
        """Return the named outputs; "" names the only one, of the inputs too.

        Raises:
            ConfigError: the network has no such input or output, or refuses the inputs.
        """
        given = {self.named(name, self.session.get_inputs()).name: value for name, value in inputs.items()}
        names = [self.named(name, self.session.get_outputs()).name for name in outputs]
        try:
            found: list[npt.NDArray[Any]] = self.session.run(names, given)
        except Exception as error:
            summary = str(error).partition("\n")[0]
            raise ConfigError(f"{self.path}: the network cannot be run as its sidecar says: {summary}") from error
        return found

    def named(self, name: str, known: Sequence[Any]) -> Any:
        """Return the input or output of this name."""
        found = [each for each in known if each.name == name or (not name and len(known) == 1)]
        if not found:
            names = ", ".join(each.name for each in known)
            raise ConfigError(f"{self.path}: its sidecar names {name!r}: the network has {names}")
        return found[0]

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """The opened network."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL_ONLY
        try:
            return onnxruntime.InferenceSession(self.path, options, providers=[_GPU, _CPU] if self.is_gpu else [_CPU])
        except Exception as error:
            raise ConfigError(f"{self.path}: no ONNX network: {str(error).partition(chr(10))[0]}") from error


class OnnxVectors(PictureExtractor):
    """One vector a picture: the network's output, flattened."""

    def __init__(self, files: OnnxFiles, sidecar: VectorSidecar, config: FeaturesConfig) -> None:
        super().__init__(config, sidecar)
        self.network, self._sidecar = OnnxNetwork(files, config), sidecar

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column; the length of a vector is tried out on a black picture."""
        given = self.network.named(self._sidecar.input, self.network.session.get_inputs())
        self.takes_batches = self.network.is_gpu and not isinstance(given.shape[0], int)
        return (self.network.column(self._vectors(black(self._sidecar)).shape[1], {}),)

    def rows(self, squares: Sequence[Square | Rejected], pixels: Pixels) -> list[Row]:
        """Return the vectors of N x H x W x 3 pixels."""
        return [(vector,) for vector in self._vectors(pixels)]

    def _vectors(self, pixels: Pixels) -> Matrix:
        sidecar = self._sidecar
        found = self.network.run({sidecar.input: values_of(pixels, sidecar)}, [sidecar.output])[0].astype(np.float32)
        if found.shape[0] != len(pixels) or found.ndim < 2 or found.size != len(pixels) * found.shape[1]:
            raise ConfigError(
                f"{self.network.path}: output {sidecar.output}: expected {len(pixels)} x d values, found "
                f"{' x '.join(map(str, found.shape))}: name an output behind the pooling"
            )
        vectors = found.reshape(len(pixels), -1)
        return unit_length(vectors) if sidecar.normalise else vectors


class OnnxDetector(PictureExtractor):
    """The regions that a network finds in a picture."""

    def __init__(self, files: OnnxFiles, sidecar: DetectorSidecar, config: FeaturesConfig) -> None:
        super().__init__(config, sidecar)
        self.network, self._sidecar = OnnxNetwork(files, config), sidecar
        text = files.companion(sidecar.classes).read_text(encoding="utf-8")
        self._classes = tuple(line.strip() for line in text.splitlines())

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column; the length of a vector is tried out on a black picture."""
        size = self._found(black(self._sidecar))[3].shape[1]
        return (self.network.column(size, {"names": self._classes}, FeatureKind.REGIONS),)

    def rows(self, squares: Sequence[Square | Rejected], pixels: Pixels) -> list[Row]:
        """Return the regions of one picture."""
        boxes, scores, labels, vectors = self._found(pixels)
        kept = kept_regions(scores, self.config)
        if not set(labels[:, 0].astype(int)) <= set(range(len(self._classes))):
            names = f"{self._sidecar.classes} has {len(self._classes)} names"
            raise ConfigError(f"{self.network.path}: labels {labels.min():.0f} to {labels.max():.0f}: {names}")
        left, top, right, bottom = cast(Square, squares[0]).box
        origin, extent = np.array([left, top] * 2), np.array([right - left, bottom - top] * 2)
        unit = self._sidecar.size_px if self._sidecar.box_unit == "pixel" else 1
        regions = Regions(
            boxes=(origin + np.clip(boxes[kept] / unit, 0, 1) * extent).astype(np.float32),
            labels=tuple(self._classes[int(number)] for number in labels[kept, 0]),
            scores=np.clip(scores[kept], 0, 1),
            vectors=vectors[kept],
        )
        return [(regions,)]

    def _found(self, pixels: Pixels) -> tuple[Float32, Float32, Float32, Float32]:
        """Return boxes R x 4, scores R, labels R x 1 and vectors R x d."""
        sidecar = self._sidecar
        names = [sidecar.boxes, sidecar.scores, sidecar.labels, sidecar.vectors]
        found = self.network.run({sidecar.input: values_of(pixels, sidecar)}, names)
        count, widths = found[1].size, (4, 1, 1, found[3].shape[-1])
        if found[3].ndim < 2 or any(each.size != count * width for each, width in zip(found, widths, strict=True)):
            shapes = ", ".join(str(each.shape) for each in found)
            raise ConfigError(f"{self.network.path}: expected R x 4, R, R, R x d for R = {count}, found {shapes}")
        pairs = zip(found, widths, strict=True)
        boxes, scores, labels, vectors = (each.reshape(count, width).astype(np.float32) for each, width in pairs)
        return boxes, scores[:, 0], labels, vectors


def image_extractor(
    network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
) -> OnnxVectors | OnnxDetector:
    """Return the image extractor that the sidecar of `network` describes: vectors or regions.

    Raises:
        ConfigError: the sidecar is wrong, or describes a text tower.
    """
    files = OnnxFiles(network, weights)
    if isinstance(files.sidecar, TextSidecar):
        told = "its sidecar describes a text tower; name it in features.sentences"
        raise ConfigError(f"features.images = {network!r}: {told}")
    if isinstance(files.sidecar, VectorSidecar):
        return OnnxVectors(files, files.sidecar, config)
    return OnnxDetector(files, files.sidecar, config)


def values_of(pixels: Pixels, sidecar: ImageSidecar) -> Float32:
    """Return N x H x W x 3 pixels as the N x 3 x H x W values that a network reads."""
    mean, deviation = np.array([sidecar.mean, sidecar.deviation], np.float32)
    values = (pixels.astype(np.float32) - mean) / deviation
    ordered = values if sidecar.channels == "rgb" else values[..., ::-1]
    return np.ascontiguousarray(ordered.transpose(0, 3, 1, 2))


def black(sidecar: ImageSidecar) -> Pixels:
    """Return the pixels of one black picture."""
    return np.zeros((1, sidecar.size_px, sidecar.size_px, 3), np.uint8)


def unit_length(vectors: Float32) -> Float32:
    """Return vectors of length 1 along the last axis; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
