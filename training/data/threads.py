"""How many threads compute: the sums of several depend on how many there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def one_thread() -> Iterator[Any]:
    """Compute in one thread while the block lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
