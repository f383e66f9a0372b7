"""The fuser `neural-net` of Liu 2020 (table 2): two affine maps of the concatenated sources, each with ReLU."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from training.towers.fuser import Fuser, FuserSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuralNetSettings(FuserSettings):
    """N table 2: two affine maps, each with ReLU."""

    name: str = "neural-net"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return NeuralNetFuser(sources * dimensions, dimensions)


class NeuralNetFuser(Fuser):
    """N x S x d -> N x d."""

    def __init__(self, size: int, dimensions: int) -> None:
        super().__init__()
        self.first = nn.Linear(size, size)
        self.second = nn.Linear(size, dimensions)

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(stacked_NSD.flatten(1)))))
