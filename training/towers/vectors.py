"""What the towers over one fixed vector a row share: an affine map into the joint space.

Where features are standardised, their moments are those of the training split. They are buffers, so they are saved with
the weights, and they are taken over occurrences: a sentence or an image that occurs in several documents counts each
time, which makes them the same for any partition of the documents.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from training.data.documents import DocumentSet
from training.data.ragged import Float64, Floats, Int64
from training.towers.batch_norm import BatchNorm
from training.towers.dropout import RowDropout
from training.towers.inputs import (
    ImageInput,
    ImageTowerSettings,
    Rows,
    Sizes,
    Tower,
    TrainingPass,
    VectorRows,
    Workers,
    required,
    unit,
)

ROWS_AT_ONCE = 8192


class VectorTower(Tower):
    """N x v vectors -> N x d unit vectors: standardisation or batch norm or neither, dropout, affine map.

    Args:
        features: v, size of an input vector.
        dimensions: d, size of the joint space.
        dropout: probability on the input.
        standardised: whether inputs are standardised with moments of the training split.
        normalised: whether inputs are normalised with moments of the batch.
    """

    def __init__(
        self, features: int, dimensions: int, *, dropout: float, standardised: bool = False, normalised: bool = False
    ) -> None:
        super().__init__()
        self.features = features
        self.standardise = Standardise(features) if standardised else None
        self.norm = BatchNorm(features) if normalised else None
        self.dropout = RowDropout(dropout)
        self.affine = nn.Linear(features, dimensions)

    def forward(self, rows: VectorRows, training_pass: TrainingPass | None = None) -> Tensor:
        x_NV = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            x_NV = self.standardise(x_NV)
        if self.norm is not None:
            x_NV = self.norm(x_NV, training_pass)
        return unit(self.affine(self.dropout(x_NV)))

    def set_map(self, weights_DV: Tensor, bias_D: Tensor) -> None:
        if self.standardise is not None:
            self.standardise.set_moments(np.repeat([1.0, 0.0, 1.0], [1, self.features, self.features]))
        with torch.no_grad():
            for parameter, values in ((self.affine.weight, weights_DV), (self.affine.bias, bias_D)):
                parameter.zero_()[: len(values)] = values[: len(parameter)]

    def _set_moments(self, parts: Iterable[Float64], workers: Workers) -> None:
        """Standardise by the moments of all workers' parts, summed in one order whatever the number of workers."""
        if self.standardise is not None:
            own = np.array(list(parts)).reshape(-1, 1 + 2 * self.features)
            rows = torch.cat(workers.gather(torch.from_numpy(own).to(workers.device)))
            self.standardise.set_moments(rows.sum(dim=0).cpu().numpy())


class ImageVectorTower(VectorTower):
    """N images with a vector of an extractor -> N x d unit vectors.

    Raises:
        ConfigError: the data set has no such vectors.
    """

    def __init__(self, config: ImageTowerSettings, sizes: Sizes, *, standardised: bool, normalised: bool) -> None:
        name = f"image.name = '{config.name}'"
        features = required(sizes.image, tower=name, what="an image extractor in the data set")
        dropout, dimensions = config.dropout, sizes.dimensions
        super().__init__(features, dimensions, dropout=dropout, standardised=standardised, normalised=normalised)

    def prepare(self, given: ImageInput) -> Rows:
        return VectorRows.checked(given.vectors, self.features)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        self._set_moments(map(_moments_of_places, documents), workers)


def _moments_of_places(documents: DocumentSet) -> Float64:
    occurrences = np.bincount(documents.image_rows, minlength=len(documents.image_bank))
    return moments(documents.image_bank, occurrences)


def moments(vectors: Floats, occurrences: Int64 | None = None) -> Float64:
    """Return the moments of N x v vectors, each counted once or `occurrences[n]` times.

    They are 1 + 2v numbers, whose sum over workers is that of all vectors: their count, sums and sums of squares.
    """
    weights = np.ones(len(vectors)) if occurrences is None else occurrences.astype(np.float64)
    total, squares = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        chunk = vectors[start : start + ROWS_AT_ONCE].astype(np.float64)
        share = weights[start : start + ROWS_AT_ONCE]
        total += share @ chunk
        squares += share @ np.square(chunk)
    return np.concatenate([[weights.sum()], total, squares])


class Standardise(nn.Module):
    """`(x - mean) / deviation`, the identity until `set_moments`; a constant feature is only centred."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimensions))
        self.register_buffer("deviation", torch.ones(dimensions))

    def set_moments(self, found: Float64) -> None:
        """Take mean and deviation from the `moments` of the training split."""
        mean, mean_square = np.split(found[1:] / max(found[0], 1.0), 2)
        deviation = np.sqrt(np.maximum(mean_square - np.square(mean), 0.0))
        deviation[deviation < 1e-6] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation
