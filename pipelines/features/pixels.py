"""Networks as ONNX graphs, and what they read: pictures decoded, resized or cropped, and scaled.

The stored copy has a shorter side of 256 px, so that a centre crop is a cut and no resampling.

ONNX Runtime is the one way in which networks see pictures and read texts. On a CPU a run takes one thread. One session
serves all threads of a process. Values then follow from the graph, the runtime's version and the kind of processor (its
instruction set decides in which order sums are added up), and not from load, batches or threads: a test holds that to
the last bit. `Graph.identity` names all three. The kind of processor is named by what it computes: the digest of the
outputs for one fixed picture or text. A worker of another kind has other digests, and is refused before it computes
anything else. On a GPU values are equal up to rounding. It takes the package `onnxruntime-gpu` in place of
`onnxruntime`.

A convolutional network is described without importing what builds it. It is its last feature map and the classifier
behind the mean over its cells, and gives these columns:

    densenet169                  vector: the mean over the cells of the last feature map, the input of the classifier
    densenet169-mirrored         vector: the mean of that one and the one of the mirrored picture; a second pass
    densenet169-classes          classes: the 20 most probable of ImageNet (Hessel 2019, object detection)
    densenet169-names            vector: the names of these classes as a sentence (`networks.ClassNames`)
    densenet169-grid             regions: the cells of the last feature map
    efficientnet-lite0-middle    vector: the means of the maps behind blocks 4, 7, 10 and 15, one after the other
    efficientnet-lite0-int8      the same network in 8-bit integers (`convert.quantised`), with columns as above
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipelines.features.values import Float32, Rejected, Row
from pipelines.features.weights import LocalFile, digest_of
from pipelines.settings import Device, FeaturesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.configs import PositiveInt, Settings
from schemas.features import FeatureKind
from schemas.messages import ConfigError

Pixels = npt.NDArray[np.uint8]  # H x W x 3, RGB, or N of them

MAX_PIXELS = 50_000_000  # beyond any stored copy: only a file that is none has more
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time, and in how many


class Square(NamedTuple):
    """The pixels that a network reads, and where they lie in their picture: left, top, right, bottom as shares 0..1."""

    pixels: Pixels
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing(Settings):
    """What a network expects: a square of `size_px`, each channel (x - mean) / deviation of values 0..255.

    Attributes:
        fit: how a picture of any form becomes a square. `centre`: its shorter side resized to `shorter_side_px`, then
            the middle `size_px` square. `squash`: all of it resized to the square, its proportions given up. `whole`:
            it stays as it is.
        mean: of red, green and blue, as is `deviation`.
        channels: the order in which the network wants them.
    """

    fit: Literal["centre", "squash", "whole"] = "centre"
    size_px: PositiveInt = 224
    shorter_side_px: int = 256
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    channels: Literal["rgb", "bgr"] = "rgb"

    def square(self, picture: bytes) -> Square | Rejected:
        """Return the pixels of a stored picture, or why it has none."""
        try:
            image = decode_image(picture, max_pixels=MAX_PIXELS, min_side_px=1, allow_animated=False)
        except ImageRejected as error:
            return Rejected(str(error))
        size = self.size_px
        if self.fit != "centre":
            shown = image if self.fit == "whole" else image.resize((size, size), Image.Resampling.BILINEAR)
            return Square(np.array(shown), (0.0, 0.0, 1.0, 1.0))
        scale = self.shorter_side_px / min(image.size)
        if scale != 1:
            resized = (round(image.width * scale), round(image.height * scale))
            image = image.resize(resized, Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        cut = (left, top, left + size, top + size)
        across, down = size / image.width, size / image.height
        return Square(np.array(image.crop(cut)), ((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2))

    def values(self, pixels: Pixels) -> Float32:
        """Return N x H x W x 3 pixels as the N x 3 x H x W values that a network reads."""
        mean, deviation = np.array([self.mean, self.deviation], np.float32)[..., None, None]
        values = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")
        values -= mean
        values /= deviation
        return values if self.channels == "rgb" else np.ascontiguousarray(values[:, ::-1])


class PictureExtractor(ABC):
    """What extractors of pictures share: threads, each of which decodes a few pictures and passes them on.

    As many threads as this process may use cores, or `features.threads`: while some decode, others compute. On a CPU a
    pass has one picture. On a GPU it has `batch` of them, filled up with black: every pass has the same shape.
    """

    columns: Any
    batch = 1

    def __init__(self, config: FeaturesConfig, preprocessing: Preprocessing) -> None:
        self.config, self.preprocessing = config, preprocessing

    @abstractmethod
    def rows(self, squares: Sequence[Square], pixels: Pixels) -> Sequence[Row]:
        """Return the columns' values of squares, which are the first of N x H x W x 3 pixels."""

    def extract(self, pictures: Sequence[bytes]) -> list[Row]:
        """Return the value of each column for each stored picture; one that cannot be read is rejected by all."""
        _ = self.columns  # what threads share is loaded before there are several
        passes = [pictures[start : start + self.batch] for start in range(0, len(pictures), self.batch)]
        return [row for rows in self._threads.map(self._pass, passes) for row in rows]

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.config.threads or cores())

    def _pass(self, pictures: Sequence[bytes]) -> list[Row]:
        squares = [self.preprocessing.square(picture) for picture in pictures]
        sound = [square for square in squares if isinstance(square, Square)]
        found: Iterator[Row] = iter(())
        if sound:
            pixels = np.zeros((self.batch, *sound[0].pixels.shape), np.uint8)
            pixels[: len(sound)] = [square.pixels for square in sound]
            found = iter(self.rows(sound, pixels))
        return [(square,) * len(self.columns) if isinstance(square, Rejected) else next(found) for square in squares]


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, within the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or none with a quota: "max 100000"
        quota, period = map(int, _QUOTA.read_text().split())
        count = min(count, max(1, quota // period))
    return count


if (
    TYPE_CHECKING
):  # when it is imported, it writes a file among the temporary ones: a build has a folder for them by then
    import onnxruntime

GPU_BATCH = 32  # pictures of a pass on a GPU
_GPU, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_FATAL_ONLY = 4
_EXTERNAL_SUFFIX = ".data"  # beside a network too large for one file
Arrays = Mapping[str, npt.NDArray[Any]]


class Graph:
    """A network in an ONNX file, opened at the first use."""

    def __init__(self, name: str, file: LocalFile, config: FeaturesConfig) -> None:
        """Decide what computes.

        Raises:
            ConfigError: a GPU is asked for, and this onnxruntime finds none.
        """
        import onnxruntime

        self.path, self._sha256 = file
        self.is_gpu = config.device is not Device.CPU and _GPU in onnxruntime.get_available_providers()
        if config.device is Device.CUDA and not self.is_gpu:
            raise ConfigError(f"features.device = cuda: {name}: onnxruntime finds no GPU here; install onnxruntime-gpu")

    def identity(self, outputs: Sequence[npt.NDArray[Any]]) -> dict[str, Any]:
        """Return what values depend on beside the input; `outputs` are those of an input that is always the same."""
        import onnxruntime

        external = self.path.with_name(self.path.name + _EXTERNAL_SUFFIX)
        arithmetic = hashlib.sha256(b"".join(output.tobytes() for output in outputs)).hexdigest()
        return {
            "weights": self._sha256,
            "external weights": digest_of(external) if external.is_file() else "",
            "onnxruntime": onnxruntime.__version__,
            "arithmetic": "cuda" if self.is_gpu else arithmetic,
        }

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> list[npt.NDArray[Any]]:
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
            raise ConfigError(
                f"{self.path}: the network does not run with the settings of its sidecar: {summary}"
            ) from error
        return found

    def named(self, name: str, known: Sequence[Any]) -> Any:
        """Return the input or output of this name."""
        found = [each for each in known if each.name == name or (not name and len(known) == 1)]
        if not found:
            names = ", ".join(each.name for each in known)
            raise ConfigError(f"{self.path}: its sidecar names {name!r}, which the network lacks; it has {names}")
        return found[0]

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """The opened network."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL_ONLY
        try:
            return onnxruntime.InferenceSession(self.path, options, providers=[_GPU, _CPU] if self.is_gpu else [_CPU])
        except Exception as error:
            raise ConfigError(f"{self.path}: no ONNX network: {str(error).partition(chr(10))[0]}") from error


def fixed_pixels(size_px: int) -> npt.NDArray[np.uint8]:
    """Return the 1 x size x size x 3 pixels of a picture of noise, which is the same everywhere."""
    noise = hashlib.shake_128(b"multilink").digest(3 * size_px**2)
    return np.frombuffer(noise, np.uint8).reshape(1, size_px, size_px, 3)


# Of torchvision's ImageNet networks, for values 0..255.
CENTRE = Preprocessing(mean=(0.485 * 255, 0.456 * 255, 0.406 * 255), deviation=(0.229 * 255, 0.224 * 255, 0.225 * 255))
RESNET_CELLS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


class Output(StrEnum):
    """What a column of a network has."""

    VECTOR = "vector"
    MIRRORED = "mirrored"
    MIDDLE = "middle"
    CLASSES = "classes"
    NAMES = "names"
    GRID = "grid"

    @property
    def kind(self) -> FeatureKind:
        return {Output.CLASSES: FeatureKind.CLASSES, Output.GRID: FeatureKind.REGIONS}.get(self, FeatureKind.VECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A convolutional network.

    Attributes:
        dimensions: d, channels of the last feature map.
        factory: `module:callable` that returns the network in PyTorch, with random weights.
        cells: names of the parts that make the last feature map, one after the other; a ReLU follows.
        classifier: name of the part that makes logits of d values.
        packaged: `module:callable` that returns the path of weights that come with a package; empty: none do.
        middle: names of the parts behind which maps in the middle are taken.
        is_quantised: whether its graph computes in 8-bit integers.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    factory: str
    cells: tuple[str, ...]
    classifier: str
    packaged: str = ""
    middle: tuple[str, ...] = ()
    is_quantised: bool = False

    def build(self) -> Any:
        """Return the network in PyTorch, with random weights."""
        return resolve_name(self.factory)()

    @property
    def outputs(self) -> dict[str, Output]:
        """Return what each column has, by its name."""
        names = {output: self.name if output is Output.VECTOR else f"{self.name}-{output}" for output in Output}
        return {name: output for output, name in names.items() if output is not Output.MIDDLE or self.middle}
