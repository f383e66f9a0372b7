"""A user's network in onnxruntime: opened at the first use, its inputs and outputs checked by name.

On a CPU a run is on one thread, so that its arithmetic does not depend on what else is under way; on a GPU the network
computes in the precision it was exported in.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from pipelines.features.values import Compute, Device
from pipelines.features.weights import digest_of
from schemas.errors import ConfigError

_GPU, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_FATAL_ONLY = 4
_EXTERNAL_SUFFIX = ".data"  # beside a network too large for one file


class OnnxNetwork:
    """One network, safe to run from several threads."""

    def __init__(self, name: str, path: Path, compute: Compute) -> None:
        """Name the network of a file.

        Raises:
            ConfigError: a GPU is asked for, and this onnxruntime has none.
        """
        self.name = name
        self.path = path
        self.is_gpu = compute.device is not Device.CPU and _GPU in onnxruntime.get_available_providers()
        if compute.device is Device.CUDA and not self.is_gpu:
            raise ConfigError(f"features.device = cuda: {name}: onnxruntime finds no GPU here; install onnxruntime-gpu")
        self.pool = ThreadPoolExecutor(compute.threads, name)
        self._loading = threading.Lock()

    def describe(self) -> dict[str, object]:
        """Return everything that its outputs depend on, beside its inputs."""
        external = self.path.with_name(self.path.name + _EXTERNAL_SUFFIX)
        return {
            "weights": self._digest,
            "external weights": digest_of(external) if external.is_file() else "",
            "device": "cuda" if self.is_gpu else "cpu",
            "onnxruntime": onnxruntime.__version__,
        }

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]) -> list[npt.NDArray[Any]]:
        """Return the named outputs.

        Raises:
            ConfigError: the network has no such input or output, or refuses the inputs.
        """
        try:
            found: list[npt.NDArray[Any]] = self.session.run(list(outputs), dict(inputs))
        except Exception as error:
            summary = str(error).partition("\n")[0]
            raise ConfigError(f"{self.path}: the network cannot be run as its sidecar says: {summary}") from error
        return found

    @property
    def session(self) -> onnxruntime.InferenceSession:
        with self._loading:
            return self._session

    def input(self, name: str) -> str:
        """Return an input's name, of the only one where `name` is ""."""
        return _named(name, [each.name for each in self.session.get_inputs()], path=self.path, what="input")

    def output(self, name: str) -> str:
        """Return an output's name, of the only one where `name` is ""."""
        return _named(name, [each.name for each in self.session.get_outputs()], path=self.path, what="output")

    def takes_batches(self, name: str) -> bool:
        """Whether an input's first axis is of any length."""
        return any(each.name == name and not isinstance(each.shape[0], int) for each in self.session.get_inputs())

    def width(self, name: str) -> int | None:
        """Return the length of an output's last axis, where the network states it."""
        for each in self.session.get_outputs():
            if each.name == name and each.shape and isinstance(each.shape[-1], int):
                return each.shape[-1]
        return None

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL_ONLY
        try:
            return onnxruntime.InferenceSession(self.path, options, providers=[_GPU, _CPU] if self.is_gpu else [_CPU])
        except Exception as error:
            raise ConfigError(f"{self.path}: no ONNX network: {str(error).partition(chr(10))[0]}") from error

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.path)


def unit_length(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return vectors of length 1 along the last axis; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _named(name: str, known: Sequence[str], *, path: Path, what: str) -> str:
    if not name and len(known) == 1:
        return known[0]
    if name not in known:
        raise ConfigError(f"{path}: {what} = {name!r} in its sidecar: the network has {', '.join(known)}")
    return name
