"""Transformer layers over packed tokens (Vaswani 2017), of the text and of the image tower of Li 2022.

A layer has attention and feed-forward, each with residual and layer normalisation after it, equal to
`torch.nn.TransformerEncoderLayer` on padded rows. Attention weights are not dropped.
"""

from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from training.towers.packing import Packing, attend


class LayerSettings(Protocol):
    """Settings of a stack of layers."""

    @property
    def layers(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def hidden_dimensions(self) -> int: ...

    @property
    def dropout(self) -> float: ...


class TransformerLayer(nn.Module):
    """T x d packed tokens -> T x d; tokens see those of their own row."""

    def __init__(self, dimensions: int, config: LayerSettings) -> None:
        super().__init__()
        self.heads = config.heads
        hidden, dropout = config.hidden_dimensions, config.dropout
        self.attention_in = nn.Linear(dimensions, 3 * dimensions)
        self.attention_out = nn.Linear(dimensions, dimensions)
        self.attention_norm = nn.LayerNorm(dimensions)
        self.widen = nn.Linear(dimensions, hidden)
        self.narrow = nn.Linear(hidden, dimensions)
        self.norm = nn.LayerNorm(dimensions)
        self.mixed_dropout = nn.Dropout(dropout)
        self.wide_dropout = nn.Dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        nn.init.xavier_uniform_(self.attention_in.weight)
        nn.init.zeros_(self.attention_in.bias)
        nn.init.zeros_(self.attention_out.bias)

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        query, key, value = self.attention_in(x_TD).chunk(3, dim=-1)
        mixed = self.attention_out(attend(query, key, value, packing, heads=self.heads))
        x_TD = self.attention_norm(x_TD + self.mixed_dropout(mixed))
        widened = self.wide_dropout(F.relu(self.widen(x_TD)))
        return self.norm(x_TD + self.dropout(self.narrow(widened)))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Several layers, one after the other."""

    def __init__(self, dimensions: int, config: LayerSettings) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(dimensions, config) for _ in range(config.layers))

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            x_TD = layer(x_TD, packing)
        return x_TD
