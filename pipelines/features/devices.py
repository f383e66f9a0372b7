"""Where a network computes and in which numbers, from what is asked for and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipelines.features.values import Compute, Device, Precision
from schemas.errors import ConfigError

_DTYPES = {Precision.FLOAT32: torch.float32, Precision.FLOAT16: torch.float16, Precision.BFLOAT16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Place:
    """A device and a number type."""

    device: torch.device
    dtype: torch.dtype

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def describe(self) -> dict[str, str]:
        return {"device": self.device.type, "precision": str(self.dtype).removeprefix("torch.")}


def place_of(compute: Compute) -> Place:
    """Return the device and numbers that `compute` means on this machine.

    Raises:
        ConfigError: a GPU is asked for and there is none, or float16 on a CPU.
    """
    has_gpu = compute.device is not Device.CPU and torch.cuda.is_available()
    if compute.device is Device.CUDA and not has_gpu:
        raise ConfigError("features.device = cuda: PyTorch finds no GPU here; auto takes one where there is one")
    if compute.precision is Precision.FLOAT16 and not has_gpu:
        raise ConfigError("features.precision = float16: a CPU computes in float32 or bfloat16")
    usual = Precision.FLOAT16 if has_gpu else Precision.FLOAT32
    precision = usual if compute.precision is Precision.AUTO else compute.precision
    return Place(torch.device("cuda" if has_gpu else "cpu"), _DTYPES[precision])
