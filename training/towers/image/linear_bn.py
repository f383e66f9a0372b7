"""Image tower of Alikhani 2022: batch norm and an affine map of a CNN's vector."""

from dataclasses import dataclass

from training.towers.inputs import Sizes, Tower
from training.towers.settings import ImageTowerSettings
from training.towers.vectors import ImageVectorTower


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearBnSettings(ImageTowerSettings):
    """A: batch norm and an affine map of a CNN's vector."""

    name: str = "linear-bn"

    def build(self, sizes: Sizes, text: object) -> Tower:
        return ImageVectorTower(self, sizes, normalised=True)
