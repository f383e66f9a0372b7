"""The fuser `share`: a weighted mean of a document's sources, with one learnt weight a source.

multilink train ... --set text.name=multi-source --set text.fuser.name=share
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.towers.multi_source import Fuser, FuserSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings(FuserSettings):
    """A mean over the sources with learnt weights, which are positive and sum to 1."""

    name: str = "share"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        """Return the fuser; at first all sources have the same weight."""
        return ShareFuser(sources)


class ShareFuser(Fuser):
    """N x S x d -> N x d."""

    def __init__(self, sources: int) -> None:
        super().__init__()
        self.logits_S = nn.Parameter(torch.zeros(sources))

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        """Return the vectors of N documents."""
        return torch.einsum("nsd,s->nd", stacked_NSD, self.logits_S.softmax(dim=0))
