"""What the solver reads of vectors: centred, their principal components, whitened by half, of norm 1 on average.

Whitening by half divides each component by the square root of its standard deviation, so that strong components count
more than weak ones, and less than they did.

Shape suffixes: V numbers of a vector, K components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.errors import BuildError

SMALLEST = 1e-10  # share of the largest eigenvalue under which a component is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A part of a tower's vectors, which is whitened by itself.

    Attributes:
        size: how many numbers it has.
        components: of which at most so many are kept.
        weight: what they are multiplied with at the end; 0: the part is not read.
    """

    size: int
    components: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """How vectors become the solver's inputs: `(x - mean) @ whitening`.

    Attributes:
        mean: V, of the training rows.
        whitening: V x K, float64.
        covariance: K x K, of the inputs of the training rows.
    """

    mean: Tensor
    whitening: Tensor
    covariance: Tensor

    def of(self, x_NV: Tensor) -> Tensor:
        """Return N x K inputs, float32."""
        return (x_NV - self.mean.float()) @ self.whitening.float()


def sums_of(x_NV: Tensor) -> Tensor:
    """Return (V + 1) x (V + 1) sums of the products of rows with a 1 before them: count, sums, second moments."""
    rows = torch.nn.functional.pad(x_NV.double(), (1, 0), value=1.0)
    return rows.T @ rows


def inputs_from(sums: Tensor, columns: Sequence[Column], *, what: str) -> Inputs:
    """Return the inputs of vectors whose `sums_of` are given, column by column; `what` they are of is for messages.

    Raises:
        BuildError: a vector is not finite, or all are equal.
    """
    if not sums.isfinite().all():
        raise BuildError(f"vectors of training {what}: expected finite numbers, found others; build the data set anew")
    count = sums[0, 0]
    mean = sums[0, 1:] / count
    covariance_VV = sums[1:, 1:] / count - torch.outer(mean, mean)
    parts, first = [], 0
    for column in columns:
        rows = slice(first, first + column.size)
        parts.append(_half_whitened(covariance_VV[rows, rows], column))
        first += column.size
    if not sum(part.shape[1] for part in parts):
        raise BuildError(f"vectors of training {what}: expected different ones, found all equal; use another extractor")
    whitening = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
    return Inputs(mean=mean, whitening=whitening, covariance=whitening.T @ covariance_VV @ whitening)


def _half_whitened(covariance_VV: Tensor, column: Column) -> Tensor:
    """Return V x K: the largest components, each divided by the square root of its deviation, of norm `weight`."""
    values, vectors = torch.linalg.eigh(covariance_VV)
    kept = values.flip(0)[: column.components if column.weight else 0]
    kept = kept[kept > SMALLEST * values[-1].clamp(min=torch.finfo(kept.dtype).tiny)]
    components_VK = vectors.flip(1)[:, : len(kept)]
    whitened_VK: Tensor = components_VK * kept**-0.25 * (column.weight / kept.sqrt().sum().sqrt())
    return whitened_VK


def inverse_root(covariance_KK: Tensor, regularisation: float) -> Tensor:
    """Return `(C + r * e * I)^(-1/2)`, where `e` is the mean eigenvalue of a covariance `C`."""
    values, vectors = torch.linalg.eigh(covariance_KK)
    kept = values.clamp(min=0.0) + regularisation * values.mean()
    root_KK: Tensor = (vectors * kept.rsqrt()) @ vectors.T
    return root_KK
