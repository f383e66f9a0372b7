"""The text tower `sentence-mlp`: a hidden layer before the affine map of `sentence`.

multilink train ... --set text.name=sentence-mlp --set text.hidden=128
"""

from __future__ import annotations

from torch import Tensor, nn

from multilink_parts.tower_settings import SentenceMlpConfig
from training.towers.inputs import Sizes, TrainingPass, VectorRows, unit
from training.towers.vectors import SentenceTower


class SentenceMlpTower(SentenceTower):
    """N x v vectors -> N x d unit vectors: standardisation, dropout, two layers."""

    def __init__(self, config: SentenceMlpConfig, sizes: Sizes, vocabulary: object = None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.hidden = nn.Linear(self.features, config.hidden)
        self.affine = nn.Linear(config.hidden, sizes.dimensions)

    def forward(self, rows: VectorRows, training_pass: TrainingPass | None = None) -> Tensor:
        """Return the unit vectors of some rows."""
        values = rows.tensor(self.affine.weight.device)
        if self.standardise is not None:
            values = self.standardise(values)
        return unit(self.affine(self.hidden(self.dropout(values)).relu()))
