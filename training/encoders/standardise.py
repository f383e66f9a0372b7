"""Standardisation on the training split: each feature to mean 0 and standard deviation 1.

The moments are buffers, so they are saved with the weights. They are taken over occurrences: a sentence or an image
that occurs in several documents counts each time, which makes them the same for any partition of the documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Float64 = npt.NDArray[np.float64]
ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Moments:
    """Number of rows, their sum and the sum of their squares (v each, float64)."""

    count: float
    total: Float64
    squares: Float64

    def packed(self) -> Float64:
        """Return the moments as one row of 1 + 2 v numbers."""
        return np.concatenate([[self.count], self.total, self.squares])

    @classmethod
    def unpacked(cls, row: Float64) -> Moments:
        total, squares = np.split(row[1:], 2)
        return cls(float(row[0]), total, squares)


def moments(vectors: npt.NDArray[np.floating[Any]], occurrences: npt.NDArray[np.int64] | None = None) -> Moments:
    """Return the moments of N x v vectors, each counted once or `occurrences[n]` times."""
    weights = np.ones(len(vectors)) if occurrences is None else occurrences.astype(np.float64)
    total, squares = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        chunk = vectors[start : start + ROWS_AT_ONCE].astype(np.float64)
        share = weights[start : start + ROWS_AT_ONCE]
        total += share @ chunk
        squares += share @ np.square(chunk)
    return Moments(float(weights.sum()), total, squares)


class Standardise(nn.Module):
    """`(x - mean) / deviation`, the identity until `set_moments`; a constant feature is only centred."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimensions))
        self.register_buffer("deviation", torch.ones(dimensions))

    def set_moments(self, found: Moments) -> None:
        """Take mean and deviation from the moments of the training split."""
        count = max(found.count, 1.0)
        mean = found.total / count
        deviation = np.sqrt(np.maximum(found.squares / count - np.square(mean), 0.0))
        deviation[deviation < 1e-6] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation
