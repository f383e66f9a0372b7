"""Feature vectors that lie on the GPU: a batch takes its rows there, and nothing is copied over at a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.ragged import Int64
from training.encoders.rows import Rows, VectorRows
from training.host_arrays import to_device

MOST_OF_FREE_MEMORY = 0.5


@dataclass(frozen=True, slots=True)
class BankRows:
    """Fixed vectors, N x dimensions, on a device; what `VectorRows` is on the host."""

    vectors: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Int64) -> BankRows:
        places = to_device(rows, self.vectors.device)
        return BankRows(self.vectors.index_select(0, places))

    def tensor(self, device: torch.device) -> Tensor:
        """Return N x dimensions, float32."""
        return self.vectors.to(device).float()


def on_device(rows: Rows, device: torch.device) -> Rows:
    """Return prepared rows on a GPU, if they are vectors that fit into half of what is free there, else as they are."""
    if not isinstance(rows, VectorRows) or device.type != "cuda":
        return rows
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return to_bank(rows, device) if rows.vectors.nbytes < MOST_OF_FREE_MEMORY * free_bytes else rows


def to_bank(rows: VectorRows, device: torch.device) -> BankRows:
    """Return the rows as a bank on a device."""
    return BankRows(torch.from_numpy(rows.vectors).to(device))
