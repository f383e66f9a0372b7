"""What a tower reads: rows prepared once per data set on the CPU, from which each batch takes some.

A tower's `prepare` makes them and its `forward` turns them into tensors on its device. A tower with another kind of
input (regions, roles) adds its own class with the same three operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemas.errors import UsageError
from training.data.documents import Int64, offsets_of, ragged_positions


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
        return torch.from_numpy(np.array(self.vectors, dtype=np.float32)).to(device)


@dataclass(frozen=True, slots=True)
class WordRows:
    """Word numbers of N sentences: `words[offsets[n]:offsets[n + 1]]`, at least one a sentence."""

    words: npt.NDArray[np.int32]
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Int64) -> WordRows:
        return WordRows(self.words[ragged_positions(self.offsets, rows)], offsets_of(np.diff(self.offsets)[rows]))
