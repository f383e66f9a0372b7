"""The fuser of Liu 2020 (5.1, steps 2-5): one single-head attention over the sources, then two affine maps, 4d-4d-d."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from training.data.ragged import Ragged
from training.towers.fuser import Fuser, FuserSettings
from training.towers.packing import Packing
from training.towers.self_attention import SelfAttention


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
