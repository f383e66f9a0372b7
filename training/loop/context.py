"""Who else trains: the small surface between the loop and whatever runs it.

The loop talks to a `Context` alone. By itself it is one process, a unit test or a laptop; `TorchDistributed` is any
initialised `torch.distributed` process group (gloo or NCCL), whoever started it: Ray's launcher passes its `report` and
its latest checkpoint in as callables.

A step is K batches, and a batch lives on one worker: of W workers, which are at most K, worker r computes the batches
r, r + W and so on. `DistributedDataParallel` sums the gradients of the workers' batches.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from schemas.messages import ConfigError
from training.config import NO_GPU, Device
from training.towers.inputs import Workers

Report = Callable[[Mapping[str, float], Path | None], None]
LatestCheckpoint = Callable[[], Path | None]
Say = Callable[[str], None]
FindModel = Callable[[str], Path]


def _report_nothing(metrics: Mapping[str, float], checkpoint: Path | None) -> None:
    """Ignore an epoch's metrics and checkpoint."""


def _say_nothing(line: str) -> None:
    """Ignore a line of progress."""


def _no_checkpoint() -> Path | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Workers):
    """What the loop knows of its surroundings: here, one process that trains alone.

    Attributes:
        on_report: takes an epoch's metrics, and on rank 0 its checkpoint folder; every worker calls it equally often.
        find_checkpoint: gives the folder of the checkpoint to resume from, or None for a fresh start.
        on_progress: takes a line of progress.
        find_model: gives the local folder of a model by its folder or address.
    """

    on_report: Report = _report_nothing
    find_checkpoint: LatestCheckpoint = _no_checkpoint
    on_progress: Say = _say_nothing
    find_model: FindModel = Path

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all workers, in rank order, without gradient."""
        return torch.cat(self.gather(values[None])).sum(dim=0)

    def summed(self, module: nn.Module) -> nn.Module:
        """Return a module whose backward pass leaves in each parameter the sum of all workers' gradients."""
        return module

    def say(self, line: str) -> None:
        """Hand over a line of progress for whoever watches; the lines of rank 0 are enough."""
        if self.rank == 0:
            self.on_progress(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDistributed(Context):
    """One worker of an initialised `torch.distributed` process group."""

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def world_size(self) -> int:
        return dist.get_world_size()

    def gather(self, rows: Tensor) -> list[Tensor]:
        rows = rows.detach().contiguous()
        sizes = self._sizes(len(rows))
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        if max(sizes):
            dist.all_gather(parts, padded)
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]

    def of_first(self, values: Tensor) -> Tensor:
        first = values.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(first, src=0)
        return first

    def summed(self, module: nn.Module) -> nn.Module:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        # What PyTorch names instead sends a worker's buffers to the others at the start.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        wrapped = DistributedDataParallel(
            module,
            init_sync=False,
            broadcast_buffers=False,
            find_unused_parameters=True,  # which rows take part differs from step to step
            gradient_as_bucket_view=True,
        )
        # A lambda has no annotations: PyTorch refuses a hook whose annotations are strings.
        wrapped.register_comm_hook(None, lambda group, bucket: _sum_bucket(group, bucket))  # noqa: PLW0108
        return wrapped

    def _sizes(self, size: int) -> list[int]:
        """Return the number of rows of each worker."""
        count = torch.tensor([size], dtype=torch.int64, device=self.device)
        counts = [torch.zeros_like(count) for _ in range(self.world_size)]
        dist.all_gather(counts, count)
        return [int(each) for each in counts]


def _sum_bucket(group: dist.ProcessGroup | None, bucket: Any) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over all workers (by itself, `DistributedDataParallel` takes their mean)."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(_first)
    return summed


def _first(future: torch.futures.Future[Any]) -> Tensor:
    summed: Tensor = future.value()[0]
    return summed


def choose_device(wanted: Device = Device.AUTO) -> torch.device:
    """Return the device a setting names; `auto` is a GPU where there is one.

    Raises:
        ConfigError: `cuda` where this machine has no usable GPU.
    """
    if wanted is Device.CUDA and not torch.cuda.is_available():
        raise ConfigError(NO_GPU)
    return torch.device("cuda" if wanted is not Device.CPU and torch.cuda.is_available() else "cpu")
