"""Who else trains: the small surface between the loop and whatever runs it.

The loop talks to a `Context` alone. By itself it is one process, a unit test or a laptop; `TorchDistributed` is any
initialised `torch.distributed` process group (gloo or NCCL), whoever started it: Ray's launcher passes its `report` and
its latest checkpoint in as callables.

A step is K batches. With at most K workers a batch lives on one of them. With more, a batch is shared by a group: each
worker encodes some of its documents, gathers the others' rows as constants, puts its own attached ones in their place,
and computes the whole loss. Either way `DistributedDataParallel` sums what the workers' backward passes find, which is
the gradient of the step's loss: each worker contributes the part through its own rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from schemas.errors import ConfigError
from training.config import Device

Report = Callable[[Mapping[str, float], Path | None], None]
LatestCheckpoint = Callable[[], Path | None]
Say = Callable[[str], None]
FindModel = Callable[[str], Path]
CPU = torch.device("cpu")


def _report_nothing(metrics: Mapping[str, float], checkpoint: Path | None) -> None:
    """Ignore an epoch's metrics and checkpoint."""


def _say_nothing(line: str) -> None:
    """Ignore a line of progress."""


def _no_checkpoint() -> Path | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the loop knows of its surroundings: here, one process that trains alone.

    Attributes:
        device: that everything is computed on.
        on_report: takes an epoch's metrics, and on rank 0 its checkpoint folder.
        find_checkpoint: gives the folder of the checkpoint to resume from, or None for a fresh start.
        on_progress: takes a line of progress.
        find_model: gives the local folder of a model by its folder or address.
    """

    device: torch.device = CPU
    on_report: Report = _report_nothing
    find_checkpoint: LatestCheckpoint = _no_checkpoint
    on_progress: Say = _say_nothing
    find_model: FindModel = Path

    @property
    def rank(self) -> int:
        return 0

    @property
    def world_size(self) -> int:
        return 1

    def gather(self, rows: Tensor, counts: Sequence[int] | None = None) -> list[Tensor]:
        """Return every worker's rows, in rank order, without gradient.

        First dimensions may differ (zero included); the other dimensions and the dtype may not. Where each worker's
        number of rows is known (`counts`), nothing is waited for.
        """
        return [rows.detach()]

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all workers, without gradient."""
        return values.detach()

    def of_first(self, values: Tensor) -> Tensor:
        """Return the first worker's tensor, without gradient; all give one of its shape.

        What it worked out is every worker's, whatever their processors round to.
        """
        return values.detach()

    def summed(self, module: nn.Module) -> nn.Module:
        """Return a module whose backward pass leaves in each parameter the sum of all workers' gradients."""
        return module

    def division(self, batches: int) -> Division:
        """Return which batches of a step of so many this worker works on, and with whom."""
        return Division(group=self)

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Hand over an epoch's metrics, and on rank 0 its checkpoint folder; every worker calls it equally often."""
        self.on_report(metrics, checkpoint)

    def say(self, line: str) -> None:
        """Hand over a line of progress for whoever watches; the lines of rank 0 are enough."""
        if self.rank == 0:
            self.on_progress(line)

    def latest_checkpoint(self) -> Path | None:
        """Return the folder of the checkpoint to resume from, or None for a fresh start."""
        return self.find_checkpoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A worker's share of every step: batches `first`, `first + stride` and so on, shared by the workers of a group.

    Attributes:
        group: who shares those batches: this worker alone, or several.
        first: number of the first batch in a step.
        stride: how far apart they are.
    """

    group: Context
    first: int = 0
    stride: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDistributed(Context):
    """One worker of an initialised `torch.distributed` process group.

    Attributes:
        group: of processes; None: all of them.
    """

    group: dist.ProcessGroup | None = field(default=None, repr=False)

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def world_size(self) -> int:
        return dist.get_world_size(self.group)

    def gather(self, rows: Tensor, counts: Sequence[int] | None = None) -> list[Tensor]:
        rows = rows.detach().contiguous()
        sizes = self._sizes(len(rows)) if counts is None else counts
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        if max(sizes):
            dist.all_gather(parts, padded, self.group)
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]

    def total(self, values: Tensor) -> Tensor:
        summed = values.detach().clone()
        dist.all_reduce(summed, group=self.group)
        return summed

    def of_first(self, values: Tensor) -> Tensor:
        found = values.detach().clone()
        dist.broadcast(found, group=self.group, group_src=0)
        return found

    def summed(self, module: nn.Module) -> nn.Module:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        # What PyTorch names instead sends a worker's buffers to the others at the start.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        wrapped = DistributedDataParallel(
            module,
            process_group=self.group,
            init_sync=False,
            broadcast_buffers=False,
            find_unused_parameters=True,  # which rows take part differs from step to step
            gradient_as_bucket_view=True,
        )
        # A lambda has no annotations: PyTorch refuses a hook whose annotations are strings.
        wrapped.register_comm_hook(self.group, lambda group, bucket: _sum_bucket(group, bucket))  # noqa: PLW0108
        return wrapped

    def division(self, batches: int) -> Division:
        if self.world_size <= batches:
            alone = Context(device=self.device)
            return Division(group=alone, first=self.rank, stride=self.world_size)
        groups = np.array_split(np.arange(self.world_size), batches)
        made: list[Any] = [dist.new_group(ranks.tolist()) for ranks in groups]  # all workers make all groups
        own = next(number for number, ranks in enumerate(groups) if self.rank in ranks)
        return Division(group=replace(self, group=made[own]), first=own, stride=batches)

    def _sizes(self, own: int) -> list[int]:
        own_count = torch.tensor([own], dtype=torch.int64, device=self.device)
        counts = [torch.zeros_like(own_count) for _ in range(self.world_size)]
        dist.all_gather(counts, own_count, self.group)
        return [int(count) for count in counts]


def _sum_bucket(group: dist.ProcessGroup | None, bucket: Any) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over all workers (by itself, `DistributedDataParallel` takes their mean)."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    found: torch.futures.Future[Tensor] = work.get_future().then(_first)
    return found


def _first(future: torch.futures.Future[Any]) -> Tensor:
    summed: Tensor = future.value()[0]
    return summed


def choose_device(wanted: Device = Device.AUTO) -> torch.device:
    """Return the device a setting names; `auto` is a GPU where there is one.

    Raises:
        ConfigError: `cuda` where this machine has no usable GPU.
    """
    if wanted is Device.CUDA and not torch.cuda.is_available():
        raise ConfigError("training.device = 'cuda': this machine has no usable GPU; use --set training.device=cpu")
    use_gpu = wanted is not Device.CPU and torch.cuda.is_available()
    return torch.device("cuda" if use_gpu else "cpu")
