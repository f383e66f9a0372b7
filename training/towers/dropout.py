"""Dropout that does not depend on who computes it: a row's mask is a hash of the draw, the layer and the row's number.

Ordinary dropout consumes a generator, so its masks depend on how the rows of a batch lie on workers. Here the loop says
which rows a tower is given (`drawing`), by their numbers in the split, and each `RowDropout` inside computes the masks
of those rows on their device. 1, 2 and 4 workers drop the same numbers; so does a resumed run.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.keys import STEP, finalised
from training.data.ragged import Int64, to_device


@dataclass(frozen=True, slots=True)
class Draw:
    """Hashes (N, int32) of the rows that a tower is given, under one draw."""

    rows: Tensor


_DRAW: ContextVar[Draw | None] = ContextVar("_DRAW", default=None)


@contextmanager
def drawing(seed: int, numbers: Int64, device: torch.device) -> Iterator[None]:
    """Let every `RowDropout` inside mask its tower's rows by their numbers.

    Args:
        seed: of the draw, in [0, 2^63): another for each step.
        numbers: N row numbers, the same for a row whoever computes it.
        device: of the tower.
    """
    token = _DRAW.set(Draw(to_device(_hash_numbers(numbers, seed), device)))
    try:
        yield
    finally:
        _DRAW.reset(token)


class RowDropout(nn.Module):
    """Dropout of rows of features, N x d or N x L x d; outside `drawing`, ordinary dropout.

    Args:
        p: probability that a number is dropped.

    Attributes:
        salt: tells the layers of a model apart; `salt_dropouts` sets it.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.salt = 0

    def forward(self, values: Tensor, rows: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
        """Return the values, each dropped with probability `p`, the others divided by `1 - p`.

        Args:
            values: R x d, or N x L x d whose rows are the tower's and whose places are 0 to L - 1.
            rows: R, which of the tower's N rows each row of `values` belongs to; None: R is N, one each.
            steps: R, its place there (a word's); None: 0.
        """
        draw = _DRAW.get()
        if draw is None or not self.training or self.p == 0:
            return F.dropout(values, self.p, self.training)
        kept = self._kept(values, draw.rows if rows is None else draw.rows.index_select(0, rows), steps)
        return values * kept.to(values.dtype).mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def _kept(self, values: Tensor, hashes: Tensor, steps: Tensor | None) -> Tensor:
        """Return which values stay, of their shape."""
        if len(hashes) != len(values):
            raise ValueError(f"expected {len(hashes)} rows, one a key, found {len(values)}; pass `rows`")
        device = values.device
        if values.ndim == 3:
            steps = torch.arange(values.shape[1], dtype=torch.int32, device=device)
            hashes = hashes[:, None]
        if steps is not None:
            hashes = _mix(hashes ^ _mix(steps.to(torch.int32) + 1))
        columns = _mix(torch.arange(values.shape[-1], dtype=torch.int32, device=device) + self.salt)
        numbers = _mix(hashes[..., None] ^ columns)
        return numbers >= int(self.p * 2**32) - 2**31


def salt_dropouts(model: nn.Module) -> None:
    """Give every `RowDropout` of a model the salt of its name, so that no two layers drop alike."""
    for name, module in model.named_modules():
        if isinstance(module, RowDropout):
            digest = hashlib.sha256(name.encode()).digest()
            module.salt = int.from_bytes(digest[:4], "little", signed=True) >> 1


def _hash_numbers(numbers: Int64, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Return N int32 hashes of row numbers: the finaliser of SplitMix64 over number and seed."""
    hashes = finalised(numbers.astype(np.uint64) * STEP + np.uint64(seed))
    return (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)


def _mix(values: Tensor) -> Tensor:
    """Return int32 values with every bit spread over all (two rounds of multiply and shift, Wellons' `lowbias32`)."""
    mixed = values ^ ((values >> 16) & 0xFFFF)
    mixed *= 0x7FEB352D
    mixed ^= (mixed >> 15) & 0x1FFFF
    mixed *= 0x846CA68B - 2**32
    mixed ^= (mixed >> 16) & 0xFFFF
    return mixed
