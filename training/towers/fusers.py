"""What several sources of a document become one vector by (Liu 2020, table 2 and 5.1)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from schemas.plugins import FUSERS, Group
from training.data.ragged import Ragged
from training.parts import PartSettings
from training.towers.packing import Packing, SelfAttention


class Fuser(nn.Module):
    """N x S x d vectors of S sources -> N x d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuserSettings(PartSettings, ABC):
    """Settings that every fuser has."""

    group: ClassVar[Group] = FUSERS
    part: ClassVar[str] = "text.fuser"

    @abstractmethod
    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        """Return the fuser with random weights.

        Args:
            sources: S.
            dimensions: d.
            head_dimensions: size of an attention head of the text tower.
        """


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSettings(FuserSettings):
    """N 5.1: attention over the sources (eq. 2, without residual)."""

    name: str = "attention"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return AttentionFuser(sources, dimensions, head_dimensions)


class AttentionFuser(Fuser):
    """N x S x d -> N x d."""

    def __init__(self, sources: int, dimensions: int, head_dimensions: int) -> None:
        super().__init__()
        self.attention = SelfAttention(
            dimensions, heads=1, head_dimensions=head_dimensions, value_dimensions=dimensions, has_output=False
        )
        self.first = nn.Linear(sources * dimensions, sources * dimensions)
        self.second = nn.Linear(sources * dimensions, dimensions)

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        count, sources, dimensions = stacked_NSD.shape
        packing = Packing.of(Ragged.of([sources] * count))
        mixed = self.attention(stacked_NSD.reshape(count * sources, dimensions), packing)
        fused_ND: Tensor = self.second(F.relu(self.first(mixed.reshape(count, sources * dimensions))))
        return fused_ND
