"""Image towers over one CNN feature an image: an affine map into the joint space.

`LinearMap` is Hessel 2019's (3.1) and Liu 2020's (4.2): input dropout, affine map, L2 norm. With word-reading text
towers the CNN feature goes in as it is; with `sentence` both towers standardise theirs on the training split (SPEC 6).
`LinearBn` is Alikhani 2022's: batch norm before the map.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from training.encoders.batch_norm import BatchNorm
from training.encoders.dropout import RowDropout
from training.encoders.inputs import ImageInput, TrainingPass
from training.encoders.rows import VectorRows
from training.encoders.standardise import Standardise


class LinearMap(nn.Module):
    """N x v vectors -> N x d unit vectors.

    Args:
        features: v, size of an input vector.
        dimensions: d, size of the joint space.
        dropout: probability on the input.
        standardised: whether inputs are standardised with moments of the training split.
    """

    def __init__(self, features: int, dimensions: int, *, dropout: float, standardised: bool) -> None:
        super().__init__()
        self.features = features
        self.standardise = Standardise(features) if standardised else None
        self.dropout = RowDropout(dropout)
        self.affine = nn.Linear(features, dimensions)

    def prepare(self, given: ImageInput) -> VectorRows:
        """Return the rows of given vectors (N x v).

        Raises:
            UsageError: the vectors have another size.
        """
        return VectorRows.checked(given.vectors, self.features)

    def forward(self, rows: VectorRows, training_pass: TrainingPass | None = None) -> Tensor:
        x_NV = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            x_NV = self.standardise(x_NV)
        return unit(self.affine(self.dropout(x_NV)))


class LinearBn(nn.Module):
    """N x v vectors -> N x d unit vectors: batch norm, dropout, affine map.

    Args:
        features: v, size of an input vector.
        dimensions: d, size of the joint space.
        dropout: probability on the normalised input.
    """

    def __init__(self, features: int, dimensions: int, *, dropout: float) -> None:
        super().__init__()
        self.features = features
        self.norm = BatchNorm(features)
        self.dropout = RowDropout(dropout)
        self.affine = nn.Linear(features, dimensions)

    def prepare(self, given: ImageInput) -> VectorRows:
        """Return the rows of given vectors (N x v).

        Raises:
            UsageError: the vectors have another size.
        """
        return VectorRows.checked(given.vectors, self.features)

    def forward(self, rows: VectorRows, training_pass: TrainingPass | None = None) -> Tensor:
        x_NV = self.norm(rows.tensor(self.affine.weight.device), training_pass)
        return unit(self.affine(self.dropout(x_NV)))


def unit(rows: Tensor) -> Tensor:
    """Return rows of Euclidean length 1, float32 whatever the precision of the products before."""
    return F.normalize(rows.float(), dim=-1)
