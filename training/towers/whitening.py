"""Vectors of several columns as inputs: centred, their principal components, whitened by half, of norm 1 on average.

Whitening by half divides each component by the square root of its standard deviation, so that strong components count
more than weak ones, and less than they did. Each column is whitened by itself and has a weight.

Shape suffixes: N vectors, V numbers of a vector, K components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import torch
from torch import Tensor

from schemas.messages import BuildError
from training.towers.inputs import Workers

COLUMN_WEIGHTS = ("*-middle=0.5", "colour-shape=0.5")  # half of what a network says of the whole picture
SMALLEST = 1e-10  # share of the largest eigenvalue under which a component is rounding
ROUNDING = 1e-12  # likewise of the mean square of a column's vectors: of equal vectors float64 sums leave so much


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

    @property
    def kept(self) -> int:
        """The largest number of components that are kept."""
        return min(self.size, self.components) if self.weight else 0


def weighted_columns(columns: Mapping[str, slice], components: int, weights: Sequence[str]) -> list[Column]:
    """Return the columns that stand in vectors; the first weight `GLOB=WEIGHT` whose glob fits its name counts."""
    rules = [each.rpartition("=") for each in weights]
    return [
        Column(
            size=part.stop - part.start,
            components=components,
            weight=next((float(weight) for glob, _, weight in rules if fnmatch(name, glob)), 1.0),
        )
        for name, part in columns.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whitening:
    """How vectors become inputs: `(x - mean) @ components`.

    Attributes:
        mean: V, of the training rows.
        components: V x K, float64.
        covariance: K x K, of the inputs of the training rows.
    """

    mean: Tensor
    components: Tensor
    covariance: Tensor

    def of(self, x_NV: Tensor) -> Tensor:
        """Return N x K inputs, float32."""
        return (x_NV - self.mean.float()) @ self.components.float()

    def uncorrelated(self, workers: Workers) -> Whitening:
        """Return rank 0's whitening of the same rows into inputs that are uncorrelated: of a diagonal covariance."""
        variances_K, basis_KK = torch.linalg.eigh(self.covariance)
        return Whitening(
            mean=self.mean,
            components=workers.of_first(self.components @ basis_KK),
            covariance=workers.of_first(variances_K.clamp(min=0.0)).diag(),
        )


def sums_of(x_NV: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return (V + 1) x (V + 1) sums of the products of rows with a 1 before them: count, sums, second moments.

    Each row counts once, or `counts[n]` times.
    """
    rows = torch.nn.functional.pad(x_NV.double(), (1, 0), value=1.0)
    return rows.T @ (rows if counts is None else counts[:, None] * rows)


def whitening_from(sums: Tensor, columns: Sequence[Column], *, what: str) -> Whitening:
    """Return the whitening of vectors whose `sums_of` are given, column by column; `what` they are of is for messages.

    Raises:
        BuildError: a vector is not finite, or all are equal.
    """
    if not sums.isfinite().all():
        raise BuildError(f"vectors of training {what}: expected finite numbers, found others; build the data set again")
    count = sums[0, 0]
    mean = sums[0, 1:] / count
    covariance_VV = sums[1:, 1:] / count - torch.outer(mean, mean)
    parts, first = [], 0
    for column in columns:
        rows = slice(first, first + column.size)
        level = ROUNDING * float(sums.diagonal()[1:][rows].sum() / count)
        parts.append(_half_whitened(covariance_VV[rows, rows], column, level))
        first += column.size
    if not sum(part.shape[1] for part in parts):
        raise BuildError(f"vectors of training {what}: expected different ones, found all equal; use another extractor")
    components_VK = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
    covariance_KK = components_VK.T @ covariance_VV @ components_VK
    return Whitening(mean=mean, components=components_VK, covariance=covariance_KK)


def shared_whitening(sums: Tensor, columns: Sequence[Column], workers: Workers, *, what: str) -> Whitening:
    """Return rank 0's `whitening_from`: signs of components, and how many there are, differ between processors."""
    whitening, most = whitening_from(sums, columns, what=what), sum(column.kept for column in columns)
    missing = most - whitening.components.shape[1]
    components_VK = workers.of_first(torch.nn.functional.pad(whitening.components, (0, missing)))
    covariance_KK = workers.of_first(torch.nn.functional.pad(whitening.covariance, (0, missing, 0, missing)))
    count = int(components_VK.any(dim=0).sum())
    return Whitening(
        mean=workers.of_first(whitening.mean),
        components=components_VK[:, :count].contiguous(),
        covariance=covariance_KK[:count, :count].contiguous(),
    )


def _half_whitened(covariance_VV: Tensor, column: Column, least: float) -> Tensor:
    """Return V x K: the largest components, each divided by the square root of its deviation, of norm `weight`.

    Those whose variance is at most `least` are left out.
    """
    values, vectors = torch.linalg.eigh(covariance_VV)
    kept = values.flip(0)[: column.kept]
    kept = kept[kept > max(SMALLEST * float(values[-1]), least, torch.finfo(kept.dtype).tiny)]
    components_VK = vectors.flip(1)[:, : len(kept)]
    whitened_VK: Tensor = components_VK * kept**-0.25 * (column.weight / kept.sqrt().sum().sqrt())
    return whitened_VK
