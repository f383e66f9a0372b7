"""What the towers over one fixed vector a row share: an affine map into the joint space.

Where features are standardised or whitened, their moments are those of the training split. They are buffers, so they
are saved with the weights, and they are taken over occurrences: a sentence or an image that occurs in several documents
counts each time, which makes them the same for any partition of the documents.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from training.data.documents import DocumentSet
from training.data.ragged import Float64, Floats, Int64
from training.parts import ImageTowerSettings
from training.towers.inputs import (
    ImageInput,
    Rows,
    Sizes,
    Tower,
    VectorRows,
    Workers,
    add_of_workers,
    required,
    unit,
)
from training.towers.whitening import Column, shared_whitening, sums_of

ROWS_AT_ONCE = 8192


class VectorTower(Tower):
    """N x v vectors -> N x d unit vectors: standardisation, whitening or batch norm or none, dropout, affine map.

    Args:
        features: v, size of an input vector.
        dimensions: d, size of the joint space.
        dropout: probability on the input.
        standardised: whether inputs are standardised with moments of the training split.
        normalised: whether inputs are normalised with moments of the batch.
        whitened: columns of the inputs, which are whitened by half with moments of the training split in place of
            being standardised.
    """

    def __init__(
        self,
        features: int,
        dimensions: int,
        *,
        dropout: float,
        standardised: bool = False,
        normalised: bool = False,
        whitened: Sequence[Column] = (),
    ) -> None:
        super().__init__()
        self.features = features
        self.standardise: Standardise | HalfWhiten | None = Standardise(features) if standardised else None
        if whitened:
            self.standardise = HalfWhiten(whitened)
            features = self.standardise.outputs
        self.norm = nn.BatchNorm1d(features) if normalised else None
        self.dropout = nn.Dropout(dropout)
        self.affine = nn.Linear(features, dimensions)

    def forward(self, rows: VectorRows) -> Tensor:
        x_NV = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            x_NV = self.standardise(x_NV)
        if self.norm is not None:
            x_NV = self.norm(x_NV)
        return unit(self.affine(self.dropout(x_NV)))

    def set_map(self, weights_DV: Tensor, bias_D: Tensor) -> None:
        if isinstance(self.standardise, Standardise):
            self.standardise.set_moments(np.repeat([1.0, 0.0, 1.0], [1, self.features, self.features]))
        with torch.no_grad():
            for parameter, values in ((self.affine.weight, weights_DV), (self.affine.bias, bias_D)):
                parameter.zero_()[: len(values)] = values[: len(parameter)]

    def _set_moments(self, parts: Iterable[tuple[Floats, Int64 | None]], workers: Workers) -> None:
        """Take the moments of all workers' vectors, each with how often they occur."""
        if self.standardise is not None:
            self.standardise.fit(parts, workers)


class ImageVectorTower(VectorTower):
    """N images with a vector of an extractor -> N x d unit vectors.

    Raises:
        ConfigError: the data set has no such vectors.
    """

    def __init__(
        self,
        config: ImageTowerSettings,
        sizes: Sizes,
        *,
        standardised: bool = False,
        normalised: bool = False,
        whitened: Sequence[Column] = (),
    ) -> None:
        name = f"image.name = '{config.name}'"
        super().__init__(
            required(sizes.image, tower=name, what="an image extractor in the data set"),
            sizes.dimensions,
            dropout=config.dropout,
            standardised=standardised,
            normalised=normalised,
            whitened=whitened,
        )

    def prepare(self, given: ImageInput) -> Rows:
        return VectorRows.checked(given.vectors, self.features)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        self._set_moments(((part.image_bank, _occurrences(part)) for part in documents), workers)


def _occurrences(documents: DocumentSet) -> Int64:
    return np.bincount(documents.image_rows, minlength=len(documents.image_bank))


def moments(vectors: Floats, occurrences: Int64 | None = None) -> Float64:
    """Return the moments of N x v vectors, each counted once or `occurrences[n]` times.

    They are 1 + 2v numbers, whose sum over workers is that of all vectors: their count, sums and sums of squares.
    """
    total, squares, count = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1]), 0.0
    for chunk, share in _chunks(vectors, occurrences):
        total += share @ chunk
        squares += share @ np.square(chunk)
        count += share.sum()
    return np.concatenate([[count], total, squares])


def _chunks(vectors: Floats, occurrences: Int64 | None) -> Iterator[tuple[Float64, Float64]]:
    """Yield n x v vectors, and n weights, a part at a time."""
    weights = np.ones(len(vectors)) if occurrences is None else occurrences.astype(np.float64)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        yield vectors[rows].astype(np.float64), weights[rows]


class Standardise(nn.Module):
    """`(x - mean) / deviation`, the identity until `set_moments`; a constant feature is only centred."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimensions))
        self.register_buffer("deviation", torch.ones(dimensions))

    def fit(self, parts: Iterable[tuple[Floats, Int64 | None]], workers: Workers) -> None:
        """Take the moments of all workers' parts, summed in one order whatever the number of workers."""
        own = np.array([moments(*part) for part in parts]).reshape(-1, 1 + 2 * len(self.mean))
        rows = torch.cat(workers.gather(torch.from_numpy(own).to(workers.device)))
        self.set_moments(rows.sum(dim=0).cpu().numpy())

    def set_moments(self, found: Float64) -> None:
        """Take mean and deviation from the `moments` of the training split."""
        mean, mean_square = np.split(found[1:] / max(found[0], 1.0), 2)
        deviation = np.sqrt(np.maximum(mean_square - np.square(mean), 0.0))
        deviation[deviation < 1e-6] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation


class HalfWhiten(nn.Module):
    """`(x - mean) @ components` of mean square 1 a number; zeros until `fit`."""

    mean: Tensor
    components: Tensor

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = columns
        features, self.outputs = sum(each.size for each in columns), sum(each.kept for each in columns)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("components", torch.zeros(features, self.outputs))

    def fit(self, parts: Iterable[tuple[Floats, Int64 | None]], workers: Workers) -> None:
        """Whiten by the moments of all workers' parts; every worker takes the first one's result.

        Raises:
            BuildError: a vector is not finite, or all are equal.
        """
        size = 1 + len(self.mean)
        own = torch.zeros(size, size, dtype=torch.float64)
        for vectors, occurrences in parts:
            for chunk, share in _chunks(vectors, occurrences):
                own += sums_of(torch.from_numpy(chunk), torch.from_numpy(share))
        total = torch.zeros_like(own, device=workers.device)
        add_of_workers(total, own.to(workers.device), workers, count=workers.world_size)
        found = shared_whitening(total, self.columns, workers, what="vectors")
        self.mean.copy_(found.mean)
        components_VK = found.components * found.covariance.trace().rsqrt() * self.outputs**0.5
        self.components[:, : components_VK.shape[1]] = components_VK

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) @ self.components
