"""Host arrays on their way to a device: index arrays and counts that a step computes in numpy.

A plain `.to("cuda")` waits until the device has done all that was launched before. A step may not
(`training.loop.step`), so everything inside one goes through `to_device`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(values: npt.NDArray[np.generic[Any]], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for it; on a CPU they share their memory.

    The copy is made from page-locked memory, which PyTorch keeps until the device has read it.
    """
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
