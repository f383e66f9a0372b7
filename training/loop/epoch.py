"""One epoch of training: its batches, prepared ahead in another thread, a step over every K of them, and its progress.

A few batches are in memory at a time, however many a step has. Progress is one line for a person; the loss is read from
the device only when a line is due, so that no step waits.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, groupby, islice
from operator import itemgetter
from typing import TypeVar

import torch
from torch import Tensor

from schemas.messages import Passing, Say, left_of
from training.data.index import batch_count, training_batches
from training.data.ragged import Int64
from training.data.split import TrainingSplit
from training.loop.context import Context
from training.loop.encoding import PreparedBatch, prepare_batch
from training.loop.setup import set_trainable
from training.loop.state import RunState, learning_rate, set_rate
from training.loop.step import StepGuard, Stepper, is_collapsed
from training.model import LinkModel
from training.objectives.batch import DrawKey, Solver

SECONDS_BETWEEN_LINES = 10.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """Progress of one epoch, which begins when this is made.

    Attributes:
        epoch: its number, from 1.
        epochs: how many there will be.
        steps: how many it has.
        say: takes a line.
        began: when it began.
        reported: when the last line was reported.
        documents: documents of the steps taken.
        taken: steps taken.
    """

    epoch: int
    epochs: int
    steps: int
    say: Say
    began: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)
    documents: int = 0
    taken: int = 0

    def step(self, documents: int, loss: Tensor, learning_rate: float) -> None:
        """Count a step of so many documents, and report now and then; `loss` is the mean of the epoch's losses so far.

        The time left is that of the training steps of all epochs to come.
        """
        self.documents += documents
        self.taken += 1
        now = time.monotonic()
        if now - self.reported < SECONDS_BETWEEN_LINES:
            return
        self.reported, elapsed_s = now, now - self.began
        left = left_of(self.taken, self.steps * (self.epochs - self.epoch + 1), elapsed_s)
        line = (
            f"epoch {self.epoch}/{self.epochs}, step {self.taken}/{self.steps}: "
            f"{self.documents / elapsed_s:.1f} documents/s, loss {float(loss):.4f}, "
            f"learning rate {learning_rate:.3g}{left}"
        )
        self.say(Passing(line))


logger = logging.getLogger(__name__)
BATCHES_AHEAD = 2
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step: its number in the epoch, its batches, its documents, and how many of its batches this worker computes."""

    number: int
    batches: int
    documents: int
    computed: int


def train_epoch(run: RunState, split: TrainingSplit, context: Context) -> dict[str, float]:
    """Take the steps of the run's epoch, and return its training metrics.

    Raises:
        BuildError: a gradient norm was not finite.
        IntegrityError: a document could not be read.
    """
    settings = run.model.card.config.training
    began, batches = time.perf_counter(), batch_count(split.index, negative_documents=settings.negative_documents)
    steps = -(-batches // settings.batches_per_step)
    set_trainable(run.model, run.epoch)
    guard = StepGuard()
    stepper = Stepper(run.model, run.optimiser, context, guard)
    progress = Progress(epoch=run.epoch, epochs=settings.epochs, steps=steps, say=context.say)
    total = torch.zeros((), dtype=torch.float64, device=context.device)
    computed = documents = 0
    for step, batches_of in groupby(_ahead(_batches(run.model, split, run.epoch, context)), itemgetter(0)):
        before = (run.epoch - 1) * steps + step.number
        rate = learning_rate(settings, epoch=run.epoch, steps_before=before, plateaus=run.schedule.count)
        set_rate(run.optimiser, rate)
        total += stepper.step((batch for _, batch in batches_of if batch is not None), count=step.batches)
        computed += step.computed
        documents += step.documents
        progress.step(step.documents, total / max(computed, 1), rate)
    guard.check()
    if context.rank == 0 and guard.last is not None and is_collapsed(guard.last):
        logger.warning("epoch %d: all training pairs are equally similar: the model has collapsed", run.epoch)
    return {
        "epoch": float(run.epoch),
        "train_loss": float(context.total(total)) / batches,
        "learning_rate": float(run.optimiser.param_groups[0]["lr"]),
        "documents_per_second": documents / (time.perf_counter() - began),
    }


def solve_epoch(run: RunState, solver: Solver, context: Context, *, documents: int) -> dict[str, float]:
    """Let a solver take the pass of the run's epoch over so many documents, and return its metrics."""
    began, read = time.perf_counter(), 0
    epochs = run.model.card.config.training.epochs

    def watch(count: int) -> None:
        nonlocal read
        read += count
        pace = read / (time.perf_counter() - began)
        context.say(Passing(f"pass {run.epoch}/{epochs}: {pace:.1f} documents/s"))

    metrics = solver.take(run.epoch, watch)
    pace = {"documents_per_second": documents / (time.perf_counter() - began)}
    return {"epoch": float(run.epoch)} | metrics | pace


def _batches(
    model: LinkModel, split: TrainingSplit, epoch: int, context: Context
) -> Iterator[tuple[_Step, PreparedBatch | None]]:
    """Yield the batches that this worker computes, each with its step; a step of which it computes none without one."""
    settings = model.card.config.training
    batches = training_batches(
        split.index, negative_documents=settings.negative_documents, seed=settings.seed, epoch=epoch
    )
    for first in count(0, settings.batches_per_step):
        rows: list[Int64] = list(islice(batches, settings.batches_per_step))
        if not rows:
            return
        numbers = range(context.rank, len(rows), context.world_size)
        step = _Step(
            number=first // settings.batches_per_step,
            batches=len(rows),
            documents=sum(map(len, rows)),
            computed=len(numbers),
        )
        if not numbers:
            yield step, None
        for number in numbers:
            draw_key = DrawKey(split="training", epoch=epoch, step=first + number, seed=settings.seed)
            yield step, prepare_batch(model, split, rows[number], draw_key)


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items that another thread has fetched, `BATCHES_AHEAD` of them ahead; what it raises is raised here."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as pool:
        coming = deque(pool.submit(next, items, None) for _ in range(BATCHES_AHEAD))
        while (item := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, items, None))
            yield item
