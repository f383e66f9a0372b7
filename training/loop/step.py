"""One optimisation step over a global batch, and what stops a run whose numbers are no numbers any more.

Nothing here waits for the device: whether loss and gradient are finite is computed there, a step that is not finite
changes no parameter (the fused optimiser reads the flag on the device), and `StepGuard` looks at the flags of steps
that are over. On a CPU there is nothing to wait for: the step itself raises. What a step computes in numpy goes over
without waiting (`training.data.ragged.to_device`). AP is the exception: its assignments are solved on the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from schemas.errors import BuildError
from training.data.ragged import Int64
from training.loop.context import Context
from training.loop.encoding import PreparedSplit, encode_batch
from training.loop.setup import seeded
from training.model import LinkModel
from training.objectives.batch import EncodedBatch, Moment, losses

STEPS_BEHIND = 2
COLLAPSED = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A step that was taken, as far as its error message needs it."""

    is_finite: Tensor
    loss: Tensor
    norm: Tensor
    batch: EncodedBatch
    moment: Moment


@dataclass(slots=True)
class StepGuard:
    """Raises for the steps that were not finite, at most `STEPS_BEHIND` steps late on a GPU, at once on a CPU.

    Attributes:
        taken: steps that have not been looked at.
        last: batch of the last step, encoded before it.
    """

    taken: deque[_Taken] = field(default_factory=deque)
    last: EncodedBatch | None = None

    def add(self, step: _Taken) -> None:
        self.taken.append(step)
        self.last = step.batch
        self.check(0 if step.is_finite.device.type == "cpu" else STEPS_BEHIND)

    def check(self, behind: int = 0) -> None:
        """Look at all steps but the last `behind`.

        Raises:
            BuildError: the loss or the gradient norm of one was not finite; no parameter has changed by it.
        """
        while len(self.taken) > behind:
            step = self.taken.popleft()
            if not bool(step.is_finite):
                raise BuildError(_not_finite(step))


def is_collapsed(batch: EncodedBatch) -> bool:
    """Return whether all sentences are equally similar to all images, of several documents."""
    return len(batch) > 1 and float(batch.cosines.max() - batch.cosines.min()) < COLLAPSED


def take_step(
    model: LinkModel,
    optimiser: torch.optim.Optimizer,
    *,
    split: PreparedSplit,
    positions: Int64,
    moment: Moment,
    context: Context,
    guard: StepGuard | None = None,
) -> Tensor:
    """Return the batch's mean loss (detached scalar), after the optimiser stepped along its gradient.

    Dropout depends on seed, epoch, step and the numbers of the rows alone (`training.towers.dropout`); whatever else
    is random in a tower is seeded by seed, epoch, step and rank.

    Raises:
        BuildError: the loss or the gradient norm is not finite; no parameter has changed. With a `guard` on a GPU, it
            is the guard that raises, later.
    """
    model.train()
    optimiser.zero_grad(set_to_none=True)
    with seeded(context.device, "tower", moment.seed, moment.epoch, moment.step, context.rank):
        encoded = encode_batch(model, split, positions=positions, moment=moment, context=context)
    loss = losses(model.card.config.objective, encoded).mean()
    if loss.requires_grad:  # a worker may hold no document of this batch
        torch.autograd.backward(loss)
    context.sum_gradients(model.parameters())
    norm = clip(model.parameters(), model.card.config.training.clip_norm)
    is_finite = torch.isfinite(loss.detach() + norm)
    optimiser.found_inf = (~is_finite).float()  # type: ignore[attr-defined]  # the fused optimiser's own switch
    optimiser.step()
    taken = _Taken(is_finite=is_finite, loss=loss.detach(), norm=norm, batch=_detached(encoded), moment=moment)
    watch = guard or StepGuard()
    watch.add(taken)
    if guard is None:
        watch.check()
    return loss.detach()


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
        moment=batch.moment,
    )


def _not_finite(step: _Taken) -> str:
    where = f"epoch {step.moment.epoch}, step {step.moment.step}"
    offenders = _offenders(step.batch)
    title = "documents with such vectors" if offenders else "documents of the batch"
    return (
        f"{where}: loss {float(step.loss)}, gradient norm {float(step.norm)}: expected finite numbers; {title}: "
        f"{', '.join(offenders or step.batch.ids)}; check their feature vectors or lower training.learning_rate"
    )


def _offenders(batch: EncodedBatch) -> list[str]:
    """Return the ids of the documents one of whose vectors is not finite."""
    broken = np.zeros(len(batch), dtype=bool)
    for rows, sets in ((batch.text_vectors, batch.sentences), (batch.image_vectors, batch.images)):
        broken[sets.owners[~torch.isfinite(rows).all(dim=1).cpu().numpy()]] = True
    return [id_ for id_, is_broken in zip(batch.ids, broken.tolist(), strict=True) if is_broken]
