"""Image tower of Hessel 2019 (3.1) and Liu 2020 (4.2): an affine map of a CNN's vector."""

from dataclasses import dataclass

from schemas.configs import NonNegativeInt, require
from training.parts import ImageTowerSettings
from training.towers.inputs import Sizes, Tower
from training.towers.vectors import ImageVectorTower
from training.towers.whitening import COLUMN_WEIGHTS, check_column_weights, weighted_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSettings(ImageTowerSettings):
    """H 3.1, N 4.2: an affine map of a CNN's vector.

    Attributes:
        standardise: whether vectors are standardised on the training split first.
        components: principal components that are kept of each column of vectors, which is whitened by half on the
            training split; 0: the vectors as they are.
        column_weights: what whitened columns are multiplied with, as `COLUMN=WEIGHT` with `*` for any letters.
    """

    name: str = "linear"
    standardise: bool = False
    components: NonNegativeInt = 0
    column_weights: tuple[str, ...] = COLUMN_WEIGHTS

    def __post_init__(self) -> None:
        ImageTowerSettings.__post_init__(self)
        check_column_weights(self.column_weights, field="image.column_weights")
        rule = "image.components whitens the vectors already; set image.standardise=false"
        require(not (self.standardise and self.components), field="image.standardise", value=True, rule=rule)

    @property
    def is_affine(self) -> bool:
        return type(self) is LinearSettings and not self.components  # a tower on top of it may be another map

    def build(self, sizes: Sizes, text: object) -> Tower:
        columns = weighted_columns(sizes.image_columns, self.components, self.column_weights)
        whitened = columns if self.components else ()
        return ImageVectorTower(self, sizes, standardised=self.standardise, whitened=whitened)
