"""Running moments of batch normalisations, the same for any number of workers.

A batch lives on one worker, where `nn.BatchNorm1d` normalises it. The running moments, which evaluation uses, belong to
all: each worker notes the moments of its batches, and all workers fold those of a step in the order of the batches, as
one process that computes all of them does.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def learning_norms(model: nn.Module) -> list[Any]:
    """Return the batch normalisations of a model that update their running moments."""
    return [each for each in model.modules() if isinstance(each, _BatchNorm) and each.training]


class StepMoments:
    """The running moments of a model's batch normalisations, from the start of a step to its end.

    Moments are V numbers: of each normalisation its means, then its variances.

    Args:
        model: in training mode.

    Attributes:
        noted: moments of each batch that this worker has computed.
    """

    def __init__(self, model: nn.Module) -> None:
        self.norms = learning_norms(model)
        self.noted: list[Tensor] = []
        self.before = self._moments()
        self.momenta = [norm.momentum for norm in self.norms]
        for norm in self.norms:
            norm.momentum = 1.0  # its buffers then hold the moments of the last batch alone

    def note(self) -> None:
        """Note the moments of the batch whose backward pass is over."""
        self.noted.append(self._moments())

    def fold(self, batches: int, gather: Callable[[Tensor], Sequence[Tensor]]) -> None:
        """Move the running moments towards those of each batch of the step, in order.

        Args:
            batches: of the step; worker `r` of W computed batches r, r + W and so on.
            gather: returns the rows of every worker, by rank.
        """
        if not self.norms:
            return
        parts = gather(torch.stack([self.before, *self.noted])[1:])
        after = list(torch.split(self.before, [2 * norm.num_features for norm in self.norms]))
        sizes = [len(each) for each in after]
        for number in range(batches):
            batch = torch.split(parts[number % len(parts)][number // len(parts)], sizes)
            after = [torch.lerp(*each) for each in zip(after, batch, self.momenta, strict=True)]
        for norm, moments, momentum in zip(self.norms, after, self.momenta, strict=True):
            for buffer, values in zip((norm.running_mean, norm.running_var), moments.chunk(2), strict=True):
                buffer.copy_(values)
            norm.num_batches_tracked += batches - len(self.noted)
            norm.momentum = momentum

    def _moments(self) -> Tensor:
        moments = [each for norm in self.norms for each in (norm.running_mean, norm.running_var)]
        return torch.cat(moments) if moments else torch.zeros(0)
