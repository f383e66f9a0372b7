"""One optimisation step over K batches, and what stops a run whose numbers are no numbers any more.

Nothing here waits for the device: whether the gradient is finite is computed there, a step that is not finite changes
no parameter (the fused optimiser reads the flag on the device), and `StepGuard` looks at the flags of steps that are
over. On a CPU there is nothing to wait for: the step itself raises. What a step computes in numpy goes over without
waiting (`training.data.ragged.to_device`). AP is the exception: its assignments are solved on the host.

A batch lives on one worker, where `nn.BatchNorm1d` normalises it. The running moments, which evaluation uses, belong to
all: each worker notes the moments of its batches, and all workers fold those of a step in the order of the batches, as
one process that computes all of them does (`StepMoments`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from schemas.messages import BuildError
from training.data.ragged import seeded
from training.loop.context import Context
from training.loop.encoding import PreparedBatch, encode_batch, losses
from training.model import LinkModel
from training.objectives.batch import EncodedBatch

STEPS_BEHIND = 2
COLLAPSED = 1e-6


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStep:
    """A step that was taken, as far as its error message needs it: this worker's batches, the sum of their losses."""

    is_finite: Tensor
    loss: Tensor
    norm: Tensor
    batches: Sequence[EncodedBatch]


@dataclass(slots=True)
class StepGuard:
    """Raises for the steps that were not finite, at most `STEPS_BEHIND` steps late on a GPU, at once on a CPU.

    Attributes:
        taken: steps that have not been looked at.
        last: last batch of this worker, as it was encoded before its step.
    """

    taken: deque[FinishedStep] = field(default_factory=deque)
    last: EncodedBatch | None = None

    def add(self, step: FinishedStep) -> None:
        self.taken.append(step)
        self.last = step.batches[-1] if step.batches else self.last
        self.check(0 if step.is_finite.device.type == "cpu" else STEPS_BEHIND)

    def check(self, behind: int = 0) -> None:
        """Look at all steps but the last `behind`.

        Raises:
            BuildError: the gradient norm of one was not finite; no parameter has changed by it.
        """
        while len(self.taken) > behind:
            step = self.taken.popleft()
            if not bool(step.is_finite):
                raise BuildError(_not_finite(step))


def is_collapsed(batch: EncodedBatch) -> bool:
    """Return whether all sentences are equally similar to all images, of several documents."""
    return len(batch) > 1 and float(batch.cosines.max() - batch.cosines.min()) < COLLAPSED


class Stepper:
    """Takes the steps of an epoch: the parameters that are trained stay the same as long.

    Args:
        model: is trained.
        optimiser: of its parameters.
        context: who else trains.
        guard: looks at the steps; with none, each step is looked at when it was taken.
    """

    def __init__(
        self,
        model: LinkModel,
        optimiser: torch.optim.Optimizer,
        context: Context,
        guard: StepGuard | None = None,
    ) -> None:
        self.model = model
        self.optimiser = optimiser
        self.context = context
        self.guard = guard
        self.loss_of = context.summed(_BatchLoss(model))

    def step(self, batches: Iterable[PreparedBatch], *, count: int) -> Tensor:
        """Return the sum of the mean losses of this worker's batches (detached scalar), after a step was taken.

        The step goes along the gradient of the mean of the `count` batches of all workers. What is random in a tower,
        dropout first of all, depends on seed, epoch and batch alone.

        Raises:
            BuildError: the gradient norm is not finite; no parameter has changed. With a `guard` on a GPU, it is the
                guard that raises, later.
        """
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        encoded: list[EncodedBatch] = []
        batch_losses: list[Tensor] = []
        moments = StepMoments(self.model)
        coming = iter(batches)
        batch = next(coming, None)
        while batch is not None or not batch_losses:
            following = next(coming, None)
            # Gradients are summed over workers with the last batch of a step alone.
            with (
                self.loss_of.no_sync()
                if following is not None and isinstance(self.loss_of, DistributedDataParallel)
                else nullcontext()
            ):
                loss, encoded_batch = self.loss_of(batch)
                # A loss that is not finite makes every worker's gradient so, by which all decide alike.
                torch.autograd.backward(loss, torch.where(loss.isfinite(), 1 / count, torch.nan))
            batch_losses.append(loss.detach())
            if encoded_batch is not None:
                encoded.append(encoded_batch)
                moments.note()
            batch = following
        for parameter in self.model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)  # else Adam leaves a parameter alone that nobody used
        moments.fold(count, self.context.gather)
        norm = clip(self.model.parameters(), self.model.card.config.training.clip_norm)
        is_finite = torch.isfinite(norm)
        self.optimiser.found_inf = (~is_finite).float()  # type: ignore[attr-defined]  # the fused optimiser's switch
        self.optimiser.step()
        total = torch.stack(batch_losses).sum()
        (self.guard or StepGuard()).add(FinishedStep(is_finite=is_finite, loss=total, norm=norm, batches=encoded))
        return total


class _BatchLoss(nn.Module):
    """The mean loss of a batch, and the batch encoded; of none, a zero that takes part in summing gradients."""

    def __init__(self, model: LinkModel) -> None:
        super().__init__()
        self.model = model
        self.device = model.device

    def forward(self, batch: PreparedBatch | None) -> tuple[Tensor, EncodedBatch | None]:
        anchor = next(parameter for parameter in self.model.parameters() if parameter.requires_grad)
        nothing = 0 * anchor.flatten()[0]
        if batch is None:
            return nothing, None
        draw_key = batch.draw_key
        with seeded(self.device, "tower", draw_key.seed, draw_key.epoch, draw_key.step):
            encoded = encode_batch(self.model, batch, self.device)
        loss = losses(self.model.card.config.objective, encoded).mean()
        return loss if loss.requires_grad else loss + nothing, _detached(encoded)


def clip(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Return the norm of all gradients, which are scaled down to a norm of `limit`; 0: they are left as they are."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None])
    if limit:
        nn.utils.clip_grads_with_norm_(trained, limit, norm)
    return norm


def _detached(batch: EncodedBatch) -> EncodedBatch:
    """Return a batch without its graph, which would keep the whole step in memory."""
    return EncodedBatch(
        ids=batch.ids,
        sentences=batch.sentences,
        images=batch.images,
        text_vectors=batch.text_vectors.detach(),
        image_vectors=batch.image_vectors.detach(),
        allowed=batch.allowed,
        draw_key=batch.draw_key,
    )


def _not_finite(step: FinishedStep) -> str:
    batches = [(batch, _offenders(batch)) for batch in step.batches]
    batch, offenders = next((pair for pair in batches if pair[1]), batches[0] if batches else (None, []))
    loss, norm = float(step.loss), float(step.norm)
    if batch is None or (not offenders and math.isfinite(loss)):
        return f"gradient norm {norm}: expected finite numbers; the cause is in another worker's log"
    where = f"epoch {batch.draw_key.epoch}, batch {batch.draw_key.step}"
    title = "documents with such vectors" if offenders else "documents of the batch"
    return (
        f"{where}: loss {loss}, gradient norm {norm}: expected finite numbers; {title}: "
        f"{', '.join(offenders or batch.ids)}; check their feature vectors or lower training.learning_rate"
    )


def _offenders(batch: EncodedBatch) -> list[str]:
    """Return the ids of the documents one of whose vectors is not finite."""
    broken = np.zeros(len(batch), dtype=bool)
    for rows, sets in ((batch.text_vectors, batch.sentences), (batch.image_vectors, batch.images)):
        broken[sets.owners[~torch.isfinite(rows).all(dim=1).cpu().numpy()]] = True
    return [id_ for id_, is_broken in zip(batch.ids, broken.tolist(), strict=True) if is_broken]
