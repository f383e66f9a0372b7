"""What a tower reads: rows prepared once per data set on the CPU, from which each batch takes some.

A tower's `prepare` makes them and its `forward` turns them into tensors on its device. Fixed vectors are here; a tower
with another kind of input has its own class with the same operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemas.errors import UsageError
from training.data.ragged import Int64, to_device

MAX_SHARE_OF_MEMORY = 0.5


class Rows(Protocol):
    """Prepared inputs of a tower, one a sentence or image."""

    def __len__(self) -> int: ...

    def take(self, rows: Int64) -> Self:
        """Return the given rows, in the given order."""
        ...


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Fixed vectors, N x dimensions, float16 or float32."""

    vectors: npt.NDArray[np.floating[Any]]

    @classmethod
    def checked(cls, vectors: npt.NDArray[np.floating[Any]], features: int) -> VectorRows:
        """Return the rows of N x `features` vectors (an empty array may have any width).

        Raises:
            UsageError: the vectors have another size.
        """
        if vectors.ndim != 2 or (len(vectors) and vectors.shape[1] != features):
            raise UsageError(f"expected feature vectors of {features} numbers, found shape {vectors.shape}")
        return cls(vectors if len(vectors) else np.zeros((0, features), np.float32))

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Int64) -> VectorRows:
        return VectorRows(self.vectors[rows])

    def tensor(self, device: torch.device) -> Tensor:
        """Return N x dimensions, float32."""
        return to_device(np.array(self.vectors, dtype=np.float32), device)


@dataclass(frozen=True, slots=True)
class BankRows:
    """Fixed vectors, N x dimensions, on a device; what `VectorRows` is on the host."""

    vectors: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Int64) -> BankRows:
        places = to_device(rows, self.vectors.device)
        return BankRows(self.vectors.index_select(0, places))

    def tensor(self, device: torch.device) -> Tensor:
        """Return N x dimensions, float32."""
        return self.vectors.to(device).float()


def on_device(rows: Rows, device: torch.device) -> Rows:
    """Return prepared rows on a GPU, if they are vectors that fit into half of what is free there, else as they are."""
    if not isinstance(rows, VectorRows) or device.type != "cuda":
        return rows
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return to_bank(rows, device) if rows.vectors.nbytes < MAX_SHARE_OF_MEMORY * free_bytes else rows


def to_bank(rows: VectorRows, device: torch.device) -> BankRows:
    """Return the rows as a bank on a device."""
    return BankRows(torch.from_numpy(rows.vectors).to(device))
