"""The text tower `sentence-mlp`: a hidden layer before the affine map of `sentence`.

multilink train ... --set text.name=sentence-mlp --set text.hidden=128
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from schemas.configs import PositiveInt
from training.towers.inputs import Sizes, Tower, VectorRows, unit
from training.towers.vectors import SentenceSettings, SentenceTower


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceMlpSettings(SentenceSettings):
    """Two layers over the frozen vectors of a sentence encoder.

    Attributes:
        hidden: width of the first layer.
    """

    name: str = "sentence-mlp"
    hidden: PositiveInt = 256

    def build(self, sizes: Sizes, vocabulary: object) -> Tower:
        """Return the tower with random weights."""
        return SentenceMlpTower(self, sizes)


class SentenceMlpTower(SentenceTower):
    """N x v vectors -> N x d unit vectors: standardisation, dropout, two layers."""

    def __init__(self, config: SentenceMlpSettings, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.hidden = nn.Linear(self.features, config.hidden)
        self.affine = nn.Linear(config.hidden, sizes.dimensions)

    def forward(self, rows: VectorRows) -> Tensor:
        """Return the unit vectors of some rows."""
        values = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            values = self.standardise(values)
        return unit(self.affine(self.hidden(self.dropout(values)).relu()))
