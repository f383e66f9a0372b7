"""Image tower of Hessel 2019 (3.1) and Liu 2020 (4.2): an affine map of a CNN's vector."""

from dataclasses import dataclass

from training.towers.inputs import Sizes, Tower
from training.towers.settings import ImageTowerSettings
from training.towers.vectors import ImageVectorTower


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
