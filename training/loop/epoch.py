"""One epoch of training: its batches, prepared ahead in a thread, a step over every K of them, and how it is judged.

A few batches are in memory at a time, however many a step has. Progress is one line for a person; the loss is read from
the device only when a line is due, so that no step waits.

An epoch is judged by its validation loss, the rank of a document's own image set, and (reported only) its links. A
split is judged in pools of documents that follow one another. Each worker encodes and measures its pools; what is put
together of them are sums and counts, in the order of the pools, so that all workers have the numbers of one.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, groupby, islice, pairwise
from operator import itemgetter
from typing import TypeVar, cast

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from schemas.messages import Passing, Say, left_of
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.ragged import Bool, Float64, Int64
from training.data.split import TrainingSplit, batch_count, training_batches, validation_bounds
from training.loop.context import Context
from training.loop.encoding import EncodedDocuments, PreparedBatch, choose, encode_documents, losses, prepare_batch
from training.loop.setup import set_trainable
from training.loop.state import RunState, learning_rate, set_rate
from training.loop.step import COLLAPSED, StepGuard, Stepper, is_collapsed
from training.metrics.links import score_documents
from training.model import LinkModel
from training.objectives.batch import DrawKey, Solver
from training.similarity.similarity import Ap, SetSimilarity

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
    optimiser = cast(torch.optim.Optimizer, run.optimiser)
    stepper = Stepper(run.model, optimiser, context, guard)
    progress = Progress(epoch=run.epoch, epochs=settings.epochs, steps=steps, say=context.say)
    total = torch.zeros((), dtype=torch.float64, device=context.device)
    computed = documents = 0
    for step, batches_of in groupby(_ahead(_batches(run.model, split, run.epoch, context)), itemgetter(0)):
        before = (run.epoch - 1) * steps + step.number
        rate = learning_rate(settings, epoch=run.epoch, steps_before=before, plateaus=run.schedule.count)
        set_rate(optimiser, rate)
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
        "learning_rate": float(optimiser.param_groups[0]["lr"]),
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


RETRIEVAL_POOL = 200
PAIRS_POOL = 500  # Alikhani 2022, table 4
ENOUGH_TO_RANK = 20  # documents: of fewer all own images are soon first, and their mean rank tells nothing apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Measurements of one epoch.

    Attributes:
        loss: mean loss of a document, without dropout, over batches that are the same every epoch.
        rank: mean rank (from 1; ties count half) of a document's own image set for its sentences, among pools of
            consecutive documents, at most `RETRIEVAL_POOL` each (`PAIRS_POOL` of image-text pairs).
        median_rank: median of the same ranks.
        auc: mean AUROC of the documents with known links, by cosines, times 100; None where there is none.
        precision_at_1: as `auc`.
        precision_at_5: as `auc`.
    """

    loss: float
    rank: float
    median_rank: float
    auc: float | None
    precision_at_1: float | None
    precision_at_5: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Measurements of a pool: what sums over pools are made of.

    Attributes:
        loss: sum of the losses of the documents of the batches that begin in the pool.
        spread: of the similarities in the pool, the largest less the smallest.
        links: 4 numbers: of documents with known links the sums of AUC, precision at 1 and at 5, and their count.
        ranks: twice the rank of each document.
    """

    loss: float
    spread: float
    links: Float64
    ranks: Int64


def validate(model: LinkModel, split: TrainingSplit, context: Context, *, epoch: int) -> Validation:
    """Return the epoch's measurements, equal on every worker."""
    config, documents = model.card.config, len(split.index.usable)
    size = PAIRS_POOL if config.needs.pairs else RETRIEVAL_POOL
    cuts = validation_bounds(documents, negative_documents=config.training.negative_documents)
    everyone = np.array_split(np.arange(documents), -(-documents // size))
    assigned = np.array_split(np.arange(len(everyone)), context.world_size)[context.rank]
    pools = [_judge(model, split, everyone[number], cuts) for number in assigned]
    rows = np.array([[pool.loss, pool.spread, *pool.links] for pool in pools]).reshape(-1, 6)
    doubled = np.concatenate([np.zeros(0, np.int64), *(pool.ranks for pool in pools)])
    counts = np.bincount(doubled, minlength=2 * size + 3)
    table = torch.cat(context.gather(torch.from_numpy(rows).to(context.device))).cpu().numpy()
    ranks = context.total(torch.from_numpy(counts).to(context.device)).cpu().numpy()
    if context.rank == 0 and documents > 1 and table[:, 1].max() < COLLAPSED:
        logger.warning("epoch %d: all validation documents are equally similar: the model has collapsed", epoch)
    auc, first, fifth, scored = table[:, 2:].sum(axis=0).tolist()
    return Validation(
        loss=float(table[:, 0].sum()) / documents,
        rank=float(ranks @ np.arange(len(ranks))) / (2 * documents),
        median_rank=_median(ranks) / 2,
        auc=auc / scored if scored else None,
        precision_at_1=first / scored if scored else None,
        precision_at_5=fifth / scored if scored else None,
    )


def can_rank(split: TrainingSplit) -> bool:
    """Return whether a split has enough documents for the rank of own images to choose by."""
    return len(split.index.usable) >= ENOUGH_TO_RANK


def own_set_ranks(similarity_BB: Tensor, allowed_BB: Tensor) -> Tensor:
    """Return B ranks, from 1, of each row's diagonal entry among the allowed entries of the row; a tie counts half."""
    own_B1 = similarity_BB.diagonal()[:, None]
    better = ((similarity_BB > own_B1) & allowed_BB).sum(dim=1)
    return 1 + better + ((similarity_BB == own_B1) & allowed_BB).sum(dim=1) / 2


def sharing(documents: DocumentSet) -> Bool:
    """Return D x D, whether two documents share an image or a sentence: then neither's rank can judge the other."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(documents.row_texts))}
    texts = np.array([numbers[text] for text in documents.row_texts], np.int64)
    found = np.eye(len(documents), dtype=bool)
    for members, sets in ((texts, documents.sentences), (documents.image_rows, documents.images)):
        holds = coo_array((np.ones(len(members), np.int32), (sets.owners, members))).tocsr()
        found |= (holds @ holds.T).toarray() > 0
    return found


def batch_losses(config: TrainConfig, encoded: EncodedDocuments, batches: Iterator[Int64]) -> Iterator[Tensor]:
    """Yield the losses of each batch of encoded documents, over draws that are the same every time.

    Args:
        config: that the model was trained with, whose objective's losses they are.
        encoded: documents.
        batches: rows of the documents of each batch.
    """
    draw_key = _draw_key(config)
    for rows in batches:
        choice = choose(config.objective, encoded.documents, rows, draw_key)
        yield losses(config.objective, encoded.batch(rows, draw_key, choice))


def rank_similarity(config: TrainConfig) -> SetSimilarity:
    """Return the similarity that own sets are ranked by: that of the first term that compares sets, else AP."""
    return next((term.similarity for term in config.objective if term.similarity is not None), Ap())


def _draw_key(config: TrainConfig) -> DrawKey:
    return DrawKey(split="validation", epoch=0, step=0, seed=config.training.seed)


def _judge(model: LinkModel, split: TrainingSplit, positions: Int64, cuts: Int64) -> _Pool:
    """Return the measurements of a pool of usable documents, and of the batches that begin in it.

    Args:
        model: is judged.
        split: that the documents are of.
        positions: of the pool among the usable documents, one after the other.
        cuts: place at which each batch begins, and the end of the last.
    """
    config, start, end = model.card.config, int(positions[0]), int(positions[-1]) + 1
    first, last = np.searchsorted(cuts[:-1], [start, end])
    bounds = cuts[first : last + 1]
    encoded = encode_documents(model, split, split.index.usable[start : max(end, int(bounds[-1]))])
    with torch.no_grad():
        batches = (np.arange(*pair) - start for pair in pairwise(bounds.tolist()))
        sums = [part.sum() for part in batch_losses(config, encoded, batches)]
        similarity_BB = encoded.batch(np.arange(end - start), _draw_key(config)).similarity(rank_similarity(config))
        shared = torch.from_numpy(sharing(encoded.documents.take_documents(np.arange(end - start))))
        ranks = own_set_ranks(similarity_BB, ~shared.to(similarity_BB.device))
    return _Pool(
        loss=float(torch.stack(sums).double().sum()) if sums else 0.0,
        spread=float(similarity_BB.max() - similarity_BB.min()),
        links=_link_sums(encoded, len(positions)),
        ranks=(2 * ranks).long().cpu().numpy(),
    )


def _link_sums(encoded: EncodedDocuments, count: int) -> Float64:
    """Return the sums of the link scores of the first documents, and how many of them have scores."""
    documents = encoded.documents
    text_ND, image_MD = encoded.text_vectors.cpu().numpy(), encoded.image_vectors.cpu().numpy()
    slices = [(documents.sentences.rows(row), documents.images.rows(row)) for row in range(count)]
    scores = score_documents(
        [text_ND[rows] @ image_MD[images].T for rows, images in slices], (documents.links or (None,) * count)[:count]
    ).table
    return np.append(scores.sum(axis=0), len(scores))


def _median(counts: Int64) -> float:
    """Return the median of integers, of which `counts` says how often each occurs."""
    ends, total = np.cumsum(counts), int(counts.sum())
    return float(np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right").mean())
