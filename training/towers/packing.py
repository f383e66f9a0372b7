"""Ragged rows of tokens without padding: rows in order of their length, so that equal lengths lie side by side.

    rows       a b | c | d e      packed   c | a b | d e      groups  1 row of 1 token, 2 rows of 2

All that is done token by token (embedding, projections, normalisation, feed-forward) sees the packed T x E tokens as
they are. What mixes the tokens of a row (attention, pooling) sees each group as a dense rows x length x E block, a
view of the packed tokens: nothing is copied, padded or masked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.ragged import Int64, Ragged, to_device


@dataclass(frozen=True, slots=True)
class Packing:
    """How ragged rows are packed.

    Attributes:
        order: rows in the order they are packed in.
        positions: T positions of the packed tokens among the ragged ones.
        groups: runs of rows of equal length, in packed order: how many rows, how many tokens in each.
    """

    order: Int64
    positions: Int64
    groups: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, rows: Ragged) -> Packing:
        """Return the packing of rows of at least one token each."""
        lengths = rows.counts
        order = np.argsort(lengths, kind="stable")
        sizes, counts = np.unique(lengths, return_counts=True)
        groups = tuple((int(count), int(size)) for count, size in zip(counts, sizes, strict=True))
        return cls(order, rows.positions(order), groups)

    @property
    def steps(self) -> Int64:
        """Return the T positions of the packed tokens in their rows, from 0."""
        return np.concatenate([np.zeros(0, np.int64), *(np.tile(np.arange(size), n) for n, size in self.groups)])

    def restore(self, rows_NE: Tensor) -> Tensor:
        """Return rows that are in packed order in the order they were given in."""
        return rows_NE.index_select(0, to_device(np.argsort(self.order), rows_NE.device))


def blocks(tokens_TE: Tensor, groups: tuple[tuple[int, int], ...]) -> list[Tensor]:
    """Return each group's tokens, rows x length x E."""
    parts = torch.split(tokens_TE, [count * size for count, size in groups])
    return [part.view(count, size, -1) for part, (count, size) in zip(parts, groups, strict=True)]


def attend(query_TE: Tensor, key_TE: Tensor, value_TE: Tensor, packing: Packing, *, heads: int) -> Tensor:
    """Return scaled dot-product attention of each row's tokens over one another, T x E (Vaswani 2017, eq. 1)."""
    query, key, value = (blocks(x_TE, packing.groups) for x_TE in (query_TE, key_TE, value_TE))
    parts = [_attend_block(q, k, v, heads) for q, k, v in zip(query, key, value, strict=True)]
    return torch.cat([value_TE[:0], *parts])


def pool(tokens_TE: Tensor, packing: Packing, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Return N x E rows, in the order they were given in; `reduce` takes rows x length x E blocks to rows x E."""
    parts = [reduce(block) for block in blocks(tokens_TE, packing.groups)]
    return packing.restore(torch.cat([tokens_TE[:0], *parts]))


def mean_of(block: Tensor) -> Tensor:
    """Return the mean over a block's tokens."""
    return block.mean(dim=1)


def largest_of(block: Tensor) -> Tensor:
    """Return the largest value over a block's tokens, feature by feature."""
    return block.amax(dim=1)


def softmax_pool(tokens_TE: Tensor, scores_T1: Tensor, packing: Packing) -> Tensor:
    """Return N x E rows: the mean of each row's tokens weighted by the softmax of their scores."""
    parts = [
        (scores.softmax(dim=1) * tokens).sum(dim=1)
        for scores, tokens in zip(blocks(scores_T1, packing.groups), blocks(tokens_TE, packing.groups), strict=True)
    ]
    return packing.restore(torch.cat([tokens_TE[:0], *parts]))


def _attend_block(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Return (rows x length) x E attention of one group's rows."""
    count, size, _ = query.shape
    q, k, v = (x.view(count, size, heads, -1).transpose(1, 2) for x in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v)
    return mixed.transpose(1, 2).reshape(count * size, -1)


class SelfAttention(nn.Module):
    """Multi-head self-attention of Liu 2020 (eq. 2 and below): heads of given sizes, no bias.

    Args:
        features: w, size of a token.
        heads: h.
        head_dimensions: d_k, size of a query and a key.
        value_dimensions: d_v, size of a value; None: d_k.
        has_output: whether the heads go through W^O, back to `features`.
    """

    def __init__(
        self,
        features: int,
        *,
        heads: int,
        head_dimensions: int,
        value_dimensions: int | None = None,
        has_output: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        values = heads * (value_dimensions or head_dimensions)
        self.query = nn.Linear(features, heads * head_dimensions, bias=False)
        self.key = nn.Linear(features, heads * head_dimensions, bias=False)
        self.value = nn.Linear(features, values, bias=False)
        self.output = nn.Linear(values, features, bias=False) if has_output else None

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        mixed = attend(self.query(x_TE), self.key(x_TE), self.value(x_TE), packing, heads=self.heads)
        return mixed if self.output is None else self.output(mixed)
