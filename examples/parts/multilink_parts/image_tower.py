"""The image tower `vector-mlp`: two layers over the vector of an image extractor.

multilink train ... --set image.name=vector-mlp --set image.hidden=128
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from schemas.configs import PositiveInt
from training.towers.inputs import Sizes, Tower, VectorRows, unit
from training.towers.settings import ImageTowerSettings
from training.towers.vectors import ImageVectorTower


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMlpSettings(ImageTowerSettings):
    """Two layers over the vector of an image extractor.

    Attributes:
        hidden: width of the first layer.
    """

    name: str = "vector-mlp"
    hidden: PositiveInt = 256

    def build(self, sizes: Sizes, text: Tower) -> Tower:
        """Return the tower with random weights."""
        return VectorMlpTower(self, sizes)


class VectorMlpTower(ImageVectorTower):
    """N x v vectors -> N x d unit vectors: dropout, two layers."""

    def __init__(self, config: VectorMlpSettings, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.hidden = nn.Linear(self.features, config.hidden)
        self.affine = nn.Linear(config.hidden, sizes.dimensions)

    def forward(self, rows: VectorRows) -> Tensor:
        """Return the unit vectors of some rows."""
        values = self.dropout(rows.tensor(self.affine.weight.device))
        return unit(self.affine(self.hidden(values).relu()))
