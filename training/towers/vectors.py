"""Towers over one fixed vector a row: an affine map into the joint space.

linear      Hessel 2019, 3.1; Liu 2020, 4.2: an affine map of a CNN's vector
linear-bn   Alikhani 2022: batch norm and an affine map of a CNN's vector
sentence    an affine map of the vectors of frozen sentence encoders (SPEC 6)

Where features are standardised, their moments are those of the training split. They are buffers, so they are saved with
the weights, and they are taken over occurrences: a sentence or an image that occurs in several documents counts each
time, which makes them the same for any partition of the documents.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from schemas.messages import UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Float64, Floats, Int64
from training.parts import Needs
from training.towers.inputs import (
    ImageInput,
    Rows,
    Sizes,
    TextInput,
    Tower,
    VectorRows,
    Workers,
    required,
    unit,
)
from training.towers.settings import ImageTowerSettings, TextTowerSettings

ROWS_AT_ONCE = 8192


class VectorTower(Tower):
    """N x v vectors -> N x d unit vectors: standardisation, batch norm or none, dropout, affine map.

    Args:
        features: v, size of an input vector.
        dimensions: d, size of the joint space.
        dropout: probability on the input.
        standardised: whether inputs are standardised with moments of the training split.
        normalised: whether inputs are normalised with moments of the batch.
    """

    def __init__(
        self,
        features: int,
        dimensions: int,
        *,
        dropout: float,
        standardised: bool = False,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        self.features = features
        self.standardise = Standardise(features) if standardised else None
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
        if self.standardise is not None:
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
    ) -> None:
        name = f"image.name = '{config.name}'"
        super().__init__(
            required(sizes.image, tower=name, what="an image extractor in the data set"),
            sizes.dimensions,
            dropout=config.dropout,
            standardised=standardised,
            normalised=normalised,
        )

    def prepare(self, inputs: ImageInput) -> Rows:
        return VectorRows.checked(inputs.vectors, self.features)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        banks = ((part.image_bank, np.bincount(part.image_rows, minlength=len(part.image_bank))) for part in documents)
        self._set_moments(banks, workers)


def moments(vectors: Floats, occurrences: Int64 | None = None) -> Float64:
    """Return the moments of N x v vectors, each counted once or `occurrences[n]` times.

    They are 1 + 2v numbers, whose sum over workers is that of all vectors: their count, sums and sums of squares.
    """
    weights = np.ones(len(vectors)) if occurrences is None else occurrences.astype(np.float64)
    sums = np.zeros(1 + 2 * vectors.shape[1])
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        x_NV, weights_N = vectors[rows].astype(np.float64), weights[rows]
        sums += np.concatenate([[weights_N.sum()], weights_N @ x_NV, weights_N @ np.square(x_NV)])
    return sums


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
        sums = np.array([moments(*part) for part in parts]).reshape(-1, 1 + 2 * len(self.mean))
        rows = torch.cat(workers.gather(torch.from_numpy(sums).to(workers.device)))
        self.set_moments(rows.sum(dim=0).cpu().numpy())

    def set_moments(self, sums: Float64) -> None:
        """Take mean and deviation from the `moments` of the training split."""
        mean, mean_square = np.split(sums[1:] / max(sums[0], 1.0), 2)
        deviation = np.sqrt(np.maximum(mean_square - np.square(mean), 0.0))
        deviation[deviation < 1e-6] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSettings(ImageTowerSettings):
    """H 3.1, N 4.2: an affine map of a CNN's vector.

    Attributes:
        standardise: whether vectors are standardised on the training split first.
    """

    name: str = "linear"
    standardise: bool = False

    @property
    def is_affine(self) -> bool:
        return type(self) is LinearSettings  # a tower on top of it may be another map

    def build(self, sizes: Sizes, text: object) -> Tower:
        return ImageVectorTower(self, sizes, standardised=self.standardise)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearBnSettings(ImageTowerSettings):
    """A: batch norm and an affine map of a CNN's vector."""

    name: str = "linear-bn"

    def build(self, sizes: Sizes, text: object) -> Tower:
        return ImageVectorTower(self, sizes, normalised=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceSettings(TextTowerSettings):
    """An affine map of the frozen vectors of sentence encoders, standardised on the training split."""

    name: str = "sentence"

    @property
    def needs(self) -> Needs:
        return Needs(sentence_vectors=True)

    @property
    def is_affine(self) -> bool:
        return type(self) is SentenceSettings  # a tower on top of it may be another map

    def build(self, sizes: Sizes, vocabulary: object) -> Tower:
        return SentenceTower(self, sizes)


class SentenceTower(VectorTower):
    """N sentences with a vector of an encoder -> N x d unit vectors.

    Raises:
        ConfigError: the data set has no such vectors.
    """

    def __init__(self, config: SentenceSettings, sizes: Sizes) -> None:
        name = f"text.name = '{config.name}'"
        features = required(sizes.sentence, tower=name, what="a sentence extractor in the data set")
        super().__init__(features, sizes.dimensions, dropout=config.dropout, standardised=True)

    def prepare(self, inputs: TextInput) -> Rows:
        """Return the rows of given sentence vectors; of the texts only the number counts.

        Raises:
            UsageError: there are no vectors, not one a sentence, or they have another size.
        """
        if inputs.vectors is None:
            raise UsageError("this model reads vectors of a sentence encoder; the documents have none")
        if len(inputs.vectors) != len(inputs.texts):
            raise UsageError(
                f"expected a vector for each of {len(inputs.texts)} sentences, found {len(inputs.vectors)}"
            )
        return VectorRows.checked(inputs.vectors, self.features)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        named = {"tower": "the text tower", "what": "sentence vectors"}
        self._set_moments(((required(part.sentence_vectors, **named), None) for part in documents), workers)
