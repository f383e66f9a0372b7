"""One optimisation step over a global batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from schemas.errors import BuildError
from training.data.documents import Int64
from training.loop.context import Context
from training.loop.encoding import PreparedSplit, encode_batch
from training.loop.setup import seeded
from training.model import LinkModel
from training.objectives.batch import Moment, Objective


def take_step(
    model: LinkModel,
    optimiser: torch.optim.Optimizer,
    *,
    objective: Objective,
    split: PreparedSplit,
    positions: Int64,
    moment: Moment,
    context: Context,
) -> Tensor:
    """Return the batch's mean loss (detached scalar), after the optimiser stepped along its gradient.

    Dropout is seeded by seed, epoch, step and rank, so a resumed run draws what an uninterrupted one would.

    Raises:
        BuildError: the loss or the gradient norm is not finite; no parameter has changed.
    """
    settings = model.card.config.training
    model.train()
    optimiser.zero_grad(set_to_none=True)
    with seeded(context.device, "dropout", settings.seed, moment.epoch, moment.step, context.rank):
        encoded = encode_batch(model, split, positions=positions, objective=objective, moment=moment, context=context)
    loss = objective.losses(encoded).mean()
    if loss.requires_grad:  # a worker may hold no document of this batch
        torch.autograd.backward(loss)
    context.sum_gradients(model.parameters())
    norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)
    _check_finite(loss.detach(), norm, split, positions, moment)
    optimiser.step()
    return loss.detach()


def _check_finite(loss: Tensor, norm: Tensor, split: PreparedSplit, positions: Int64, moment: Moment) -> None:
    if bool(torch.isfinite(loss + norm)):
        return
    ids = ", ".join(split.held.index.ids[position] for position in positions)
    raise BuildError(
        f"epoch {moment.epoch}, step {moment.step}: loss {float(loss)}, gradient norm {float(norm)}: expected finite "
        f"numbers; documents of the batch: {ids}; check their feature vectors or lower training.learning_rate"
    )
