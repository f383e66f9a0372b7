"""The learning rate of a step: a pure function of the settings, the step and the epoch, and of the plateaus so far.

warm-up    L: linear from `warmup_from` to `learning_rate` over `warmup_steps` steps, then
plateau    H, L: divided by `factor` when the validation loss has not improved for more than `epochs`
steps      N: divided by `factor` after every `epochs`
constant   A

With K batches a step the rate is multiplied by a power of K (`rate_scaling`).
"""

from dataclasses import dataclass
from typing import Any

import torch

from training.config import LoopConfig


@dataclass(slots=True)
class Plateaus:
    """The plateau rule: how often the validation loss has stopped improving.

    Attributes:
        patience: epochs without improvement that are accepted.
        best: lowest loss so far; None before the first.
        waited: epochs since then, or since the last plateau.
        count: plateaus so far.
    """

    patience: int
    best: float | None = None
    waited: int = 0
    count: int = 0

    def step(self, loss: float) -> None:
        """Take an epoch's validation loss into account; one that is no number is no improvement."""
        if self.best is None or loss < self.best:
            self.best, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited > self.patience:
            self.count, self.waited = self.count + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "count": self.count}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.best, self.waited, self.count = values["best"], values["waited"], values["count"]


def learning_rate(settings: LoopConfig, *, epoch: int, steps_before: int, plateaus: int) -> float:
    """Return the learning rate of a step.

    Args:
        settings: of the run.
        epoch: of the step, from 1.
        steps_before: steps taken before this one, in all epochs.
        plateaus: of the validation loss so far.
    """
    scale: float = settings.batches_per_step**settings.rate_scaling.exponent
    return scale * _unscaled(settings, epoch, steps_before, plateaus)


def _unscaled(settings: LoopConfig, epoch: int, steps_before: int, plateaus: int) -> float:
    if steps_before < settings.warmup_steps:
        share = steps_before / settings.warmup_steps
        return settings.warmup_from + share * (settings.learning_rate - settings.warmup_from)
    return settings.schedule.rate(settings.learning_rate, epoch=epoch, plateaus=plateaus)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Make an optimiser's next step use a rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate
