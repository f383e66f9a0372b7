"""Networks as ONNX graphs, run by ONNX Runtime: the one way in which networks see pictures and read texts.

On a CPU a run takes one thread. One session serves all threads of a process. Values then follow from the graph, the
runtime's version and the kind of processor (its instruction set decides in which order sums are added up), and not from
load, batches or threads: a test holds that to the last bit. `Graph.identity` names all three. The kind of processor is
named by what it computes: the digest of the outputs for one fixed picture or text. A worker of another kind has other
digests, and is refused before it computes anything else.

On a GPU values are equal up to rounding. It takes the package `onnxruntime-gpu` in place of `onnxruntime`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.features.weights import LocalFile, digest_of
from pipelines.settings import Device, FeaturesConfig
from schemas.errors import ConfigError

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
            raise ConfigError(f"{self.path}: the network cannot be run as its sidecar says: {summary}") from error
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
