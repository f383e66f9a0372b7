"""The fuser `add` of Liu 2020 (table 2): the sum over the sources."""

from dataclasses import dataclass

from torch import Tensor

from training.towers.fuser import Fuser, FuserSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSettings(FuserSettings):
    """N table 2: the sum over the sources."""

    name: str = "add"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return AddFuser()


class AddFuser(Fuser):
    """N x S x d -> N x d."""

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return stacked_NSD.sum(dim=1)
