"""Image tower of Hessel 2019 (3.1): an affine map of the CNN feature into the joint space.

Input dropout, affine map, L2 norm. With the `gru` text tower the CNN feature goes in as it is; with `sentence` both
towers standardise theirs on the training split (SPEC 6).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import functional as F

from training.encoders.dropout import RowDropout
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

    def prepare(self, vectors: npt.NDArray[np.floating[Any]]) -> VectorRows:
        """Return the rows of given vectors (N x v).

        Raises:
            UsageError: the vectors have another size.
        """
        return VectorRows.checked(vectors, self.features)

    def forward(self, rows: VectorRows) -> Tensor:
        x_NV = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            x_NV = self.standardise(x_NV)
        return unit(self.affine(self.dropout(x_NV)))


def unit(rows: Tensor) -> Tensor:
    """Return rows of Euclidean length 1, float32 whatever the precision of the products before."""
    return F.normalize(rows.float(), dim=-1)
