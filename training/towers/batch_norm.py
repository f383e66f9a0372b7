"""Batch normalisation over a batch, the same however many workers share it, or have others of the same step.

Each worker normalises its own rows with the mean and variance of all workers' rows. The gradient of those two passes
between workers, too: every worker sums, in its backward pass, what all of them found, so that parameter gradients
summed over workers are those of one process. A worker without a row takes part like the others.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from training.towers.inputs import Gather, TrainingPass

MOMENTUM = 0.1
EPSILON = 1e-5


class BatchNorm(nn.Module):
    """N x E rows -> N x E rows of mean 0 and variance 1 over the batch, then scaled and shifted.

    In evaluation the running moments take the batch's place (variance unbiased, as torch's do). Those of a step are
    the means over its batches (`remember_moments`).

    Attributes:
        fresh: 2E moments of each batch that this worker has normalised in the step; none of a batch of one row.
    """

    running_mean: Tensor
    running_variance: Tensor
    fresh: list[Tensor]

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_variance", torch.ones(features))
        self.fresh = []

    def forward(self, rows_NE: Tensor, training_pass: TrainingPass | None = None) -> Tensor:
        if not self.training:
            return self._scaled(rows_NE, self.running_mean, self.running_variance)
        gather = (training_pass or _ALONE).gather
        if not rows_NE.requires_grad:  # else this worker would miss the others' backward sums
            rows_NE = rows_NE.detach().requires_grad_()
        rows_NE = rows_NE.float()
        count = sum(len(part) for part in gather(rows_NE[:, :1]))
        mean = sum_over_workers(rows_NE.sum(dim=0), gather) / max(count, 1)
        variance = sum_over_workers((rows_NE - mean).square().sum(dim=0), gather) / max(count, 1)
        if count > 1:
            self.fresh.append(torch.cat([mean, variance * (count / (count - 1))]).detach())
        return self._scaled(rows_NE, mean, variance)

    def _scaled(self, rows_NE: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return (rows_NE - mean) * torch.rsqrt(variance + EPSILON) * self.scale + self.shift


def remember_moments(model: nn.Module, is_counted: bool, total: Callable[[Tensor], Tensor]) -> None:
    """Move the running moments of a model towards the mean moments of the batches of the step just taken.

    Args:
        model: its batch normalisations are updated.
        is_counted: whether this worker's batches are counted by it, and not by another of its group.
        total: sums a tensor over all workers.
    """
    for norm in (module for module in model.modules() if isinstance(module, BatchNorm)):
        own = torch.zeros(2 * len(norm.running_mean) + 1, device=norm.running_mean.device)
        for moments in norm.fresh if is_counted else ():
            own[:-1] += moments
            own[-1] += 1
        norm.fresh.clear()
        summed = total(own)
        batches = summed[-1]
        mean, variance = (summed[:-1] / batches.clamp(min=1)).chunk(2)
        share = MOMENTUM * (batches > 0)
        norm.running_mean.lerp_(mean, share)
        norm.running_variance.lerp_(variance, share)


def sum_over_workers(own: Tensor, gather: Gather) -> Tensor:
    """Return the sum of a tensor over all workers; its gradient is summed over them likewise."""
    total: Tensor = _SumOverWorkers.apply(own, gather)
    return total


class _SumOverWorkers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, gather: Gather) -> Tensor:
        ctx.gather = gather
        return _sum(own, gather)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.gather), None


def _sum(own: Tensor, gather: Gather) -> Tensor:
    return torch.cat(gather(own[None])).sum(dim=0)


_ALONE = TrainingPass(seed=0, epoch=0, step=0)
