"""Who else trains: the small surface between the loop and whatever runs it.

The loop talks to a `Context` alone. By itself it is one process, a unit test or a laptop; `TorchDistributed` is any
initialised `torch.distributed` process group (gloo or NCCL), whoever started it: Ray's launcher passes its `report` and
its latest checkpoint in as callables. No communication is differentiated: a worker gathers the others' embeddings as
constants, puts its own attached ones in their place, computes the whole loss, and parameter gradients are summed over
workers. That sum is exactly the gradient of the global loss, because each worker contributes the part through its own
embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from schemas.errors import ConfigError
from training.config import Device
from training.data.ragged import Int64, to_device

Report = Callable[[Mapping[str, float], Path | None], None]
LatestCheckpoint = Callable[[], Path | None]
Say = Callable[[str], None]
FindModel = Callable[[str], Path]
CPU = torch.device("cpu")
LARGE_GRADIENT = 1 << 22  # numbers; smaller gradients are summed together


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

    def gather_table(self, rows: Int64) -> list[Int64]:
        """Return every worker's R x C numbers of the host, in rank order; R may differ, C may not."""
        return [rows]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each parameter's gradient by its sum over workers; a missing one counts as zero."""
        _trained(parameters)

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
class TorchDistributed(Context):
    """One worker of an initialised `torch.distributed` process group."""

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def world_size(self) -> int:
        return dist.get_world_size()

    def gather(self, rows: Tensor, counts: Sequence[int] | None = None) -> list[Tensor]:
        rows = rows.detach().contiguous()
        sizes = self._sizes(len(rows)) if counts is None else counts
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        if max(sizes):
            dist.all_gather(parts, padded)
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]

    def gather_table(self, rows: Int64) -> list[Int64]:
        """Return every worker's numbers; they pass through the device, which is waited for."""
        return [part.cpu().numpy() for part in self.gather(to_device(rows, self.device))]

    def _sizes(self, own: int) -> list[int]:
        own_count = torch.tensor([own], dtype=torch.int64, device=self.device)
        counts = [torch.zeros_like(own_count) for _ in range(self.world_size)]
        dist.all_gather(counts, own_count)
        return [int(count) for count in counts]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        gradients = _trained(parameters)
        small = [gradient for gradient in gradients if gradient.numel() < LARGE_GRADIENT]
        for gradient in gradients:
            if gradient.numel() >= LARGE_GRADIENT:  # summed where it lies: a word table may have hundreds of millions
                dist.all_reduce(gradient)
        if small:
            flat = torch.cat([gradient.flatten() for gradient in small])
            dist.all_reduce(flat)
            for gradient, summed in zip(small, torch.split(flat, [each.numel() for each in small]), strict=True):
                gradient.copy_(summed.view_as(gradient))


def _trained(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of the parameters that are trained; one that is missing becomes zero.

    Without it Adam would leave a parameter alone on one worker and move it by its momentum on several.
    """
    found: list[Tensor] = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            found.append(parameter.grad)
    return found


def choose_device(wanted: Device) -> torch.device:
    """Return the device a setting names; `auto` is a GPU where there is one.

    Raises:
        ConfigError: `cuda` where this machine has no usable GPU.
    """
    if wanted is Device.CUDA and not torch.cuda.is_available():
        raise ConfigError("training.device = 'cuda': this machine has no usable GPU; use --set training.device=cpu")
    use_gpu = wanted is not Device.CPU and torch.cuda.is_available()
    return torch.device("cuda" if use_gpu else "cpu")
