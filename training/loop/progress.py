"""How far an epoch is, as one line for a person: rate, loss, learning rate and time left.

Steps are counted as they are taken; the loss is read from the device only when a line is due, so that no step waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from schemas.console import Passing, Say, duration

SECONDS_BETWEEN_LINES = 10.0
Clock = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Progress:
    """Progress of one epoch.

    Attributes:
        epoch: its number, from 1.
        epochs: how many there will be.
        steps: how many it has.
        say: takes a line.
        clock: seconds from any start.
        began: when it began, by the clock.
        reported: when the last line was reported.
        documents: documents of the steps taken.
        taken: steps taken.
    """

    epoch: int
    epochs: int
    steps: int
    say: Say
    clock: Clock = time.monotonic
    began: float = 0.0
    reported: float = 0.0
    documents: int = 0
    taken: int = 0

    def start(self) -> Progress:
        """Begin to count time."""
        self.began = self.reported = self.clock()
        return self

    def step(self, documents: int, loss: Tensor, learning_rate: float) -> None:
        """Count a step of so many documents; `loss` is the mean of the epoch's losses so far."""
        self.documents += documents
        self.taken += 1
        now = self.clock()
        if now - self.reported >= SECONDS_BETWEEN_LINES:
            self.reported = now
            self.say(Passing(self.line(now - self.began, float(loss), learning_rate)))

    def line(self, elapsed_s: float, loss: float, learning_rate: float) -> str:
        """Return the line of a moment; the time left is that of the training steps of all epochs to come."""
        steps_left = self.steps * (self.epochs - self.epoch + 1) - self.taken
        left_s = elapsed_s / self.taken * steps_left
        return (
            f"epoch {self.epoch}/{self.epochs}, step {self.taken}/{self.steps}: "
            f"{self.documents / elapsed_s:.1f} documents/s, loss {loss:.4f}, learning rate {learning_rate:.3g}, "
            f"{duration(left_s)} left"
        )
