"""Text tower over frozen sentence vectors: standardise, dropout, affine map, L2 norm (SPEC 6, `sentence`)."""

from __future__ import annotations

from torch import Tensor, nn

from schemas.errors import UsageError
from training.encoders.dropout import RowDropout
from training.encoders.inputs import TextInput, TrainingPass
from training.encoders.linear import unit
from training.encoders.rows import VectorRows
from training.encoders.standardise import Standardise


class SentenceTower(nn.Module):
    """N sentence vectors of `features` numbers -> N x `dimensions` unit vectors."""

    def __init__(self, features: int, dimensions: int, *, dropout: float) -> None:
        super().__init__()
        self.features = features
        self.standardise = Standardise(features)
        self.dropout = RowDropout(dropout)
        self.affine = nn.Linear(features, dimensions)

    def prepare(self, given: TextInput) -> VectorRows:
        """Return the rows of given sentence vectors; of the texts only the number counts.

        Raises:
            UsageError: there are no vectors, not one a sentence, or they have another size.
        """
        if given.vectors is None:
            raise UsageError("this model reads vectors of a sentence encoder; the documents have none")
        if len(given.vectors) != len(given.texts):
            raise UsageError(f"expected a vector for each of {len(given.texts)} sentences, found {len(given.vectors)}")
        return VectorRows.checked(given.vectors, self.features)

    def forward(self, rows: VectorRows, training_pass: TrainingPass | None = None) -> Tensor:
        x_NT = self.standardise(rows.tensor(self.affine.weight.device))
        return unit(self.affine(self.dropout(x_NT)))
