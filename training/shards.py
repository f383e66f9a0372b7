"""Work on the shards of a data set version: one after the other in this process, or many at once by workers.

A task is given a model and a shard, and returns what came of it. Whoever runs tasks (`run_here`, `training.ray.shards`)
knows nothing of what they do; results come in the order of the shards, so that nothing depends on who ran them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from schemas.manifest import Manifest
from schemas.parts import Shard
from training.model import LinkModel

Result = TypeVar("Result")


class RunShards(Protocol):
    """Runs a task for each of some shards, and yields the results in their order."""

    def __call__(
        self, model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]
    ) -> Iterator[Result]: ...


def run_here(model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
    """Run a task for each shard in this process, one after the other."""
    for shard in shards:
        with one_thread():
            found = task(model, shard)
        yield found


def filled_splits(manifest: Manifest) -> list[str]:
    """Return the splits that have documents."""
    return [split for split in manifest.splits if manifest.parts("documents", split)]


@contextmanager
def one_thread() -> Iterator[Any]:
    """Compute in one thread while the block lasts: the sums of several depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
