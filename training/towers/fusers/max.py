"""The fuser `max` of Liu 2020 (table 2): the largest value of each number over the sources."""

from dataclasses import dataclass

from torch import Tensor

from training.towers.fuser import Fuser, FuserSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxSettings(FuserSettings):
    """N table 2: the largest value of each number over the sources."""

    name: str = "max"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return MaxFuser()


class MaxFuser(Fuser):
    """N x S x d -> N x d."""

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return stacked_NSD.amax(dim=1)
