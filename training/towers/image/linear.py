"""Image tower of Hessel 2019 (3.1) and Liu 2020 (4.2): an affine map of a CNN's vector."""

from dataclasses import dataclass

from training.towers.inputs import ImageTowerSettings, Sizes, Tower
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
        return self.name == "linear"  # a tower on top of this one may be another map

    def build(self, sizes: Sizes, text: object) -> Tower:
        return ImageVectorTower(self, sizes, standardised=self.standardise, normalised=False)
