"""One pass over a split: numbers of every shard, summed in one order whatever the number of workers.

Shards are put into at most `GROUPS` groups of shards that follow one another; a group is one worker's. The workers'
sums are gathered after each of their groups, and every worker adds them up in the order of the groups: the result has
the same bits for any number of workers (each computes in one thread: `training.loop.trainer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.closed_form.plans import FOLDS, relative_places
from training.data.documents import DocumentSet, Vectors
from training.data.ragged import Float32, Float64, Int64, Ragged
from training.data.split import TrainingSplit
from training.towers.inputs import Workers, add_of_workers

GROUPS = 256  # more workers than that have nothing to do
PAIRS_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Vectors of the sentences and images of some documents.

    Attributes:
        sentences: which of the N rows are of which document.
        images: which of the M rows are of which document.
        texts: N x v of the sentences.
        places: M x v of the images, one a place.
        where: N places of the sentences, M of the images, 0 to 1 (`order`).
        folds: of the B documents.
    """

    sentences: Ragged
    images: Ragged
    texts: Float32
    places: Float32
    where: tuple[Float64, Float64]
    folds: Int64


def summed(split: TrainingSplit, workers: Workers, of_documents: Callable[[Sets], Tensor], like: Tensor) -> Tensor:
    """Return the sum of a tensor over all documents of a split that have a sentence and an image.

    Args:
        split: is read once.
        workers: share the work.
        of_documents: gives the tensor of some documents, on the device of `like`.
        like: zeros of the sum's shape, float64.
    """
    groups = np.array_split(np.arange(len(split.index.shards)), min(GROUPS, len(split.index.shards)))
    total = like.clone()
    for first in range(0, len(groups), workers.world_size):
        own = like.clone()
        number = first + workers.rank
        for shard in groups[number] if number < len(groups) else ():
            for sets in _batches(split.shard(int(shard))):
                own += of_documents(sets)
        add_of_workers(total, own, workers, count=len(groups) - first)
    return total


def _batches(documents: DocumentSet) -> Iterator[Sets]:
    """Yield documents of about one size together, so that not much of their padded pairs is padding."""
    known, where = sentence_vectors(documents), relative_places(documents)
    n, m = documents.sentences.counts, documents.images.counts
    usable = np.flatnonzero((n > 0) & (m > 0))
    usable = usable[np.lexsort((m[usable], n[usable]))]
    for places in _cut(n[usable], m[usable]):
        rows = usable[places]
        text_places, image_places = documents.sentences.positions(rows), documents.images.positions(rows)
        yield Sets(
            sentences=documents.sentences.take(rows),
            images=documents.images.take(rows),
            texts=np.asarray(known[text_places], np.float32),
            places=np.asarray(documents.image_bank[documents.image_rows[image_places]], np.float32),
            where=(where[0][text_places], where[1][image_places]),
            folds=rows % FOLDS,
        )


def _cut(n: Int64, m: Int64) -> Iterator[Int64]:
    """Yield places of documents, by rising n, few enough that padded pairs and rows are limited; at least one."""
    first = 0
    while first < len(n):
        count, rest = np.arange(1, len(n) - first + 1), slice(first, None)
        widest = np.maximum.accumulate(m[rest])
        is_small = (count * n[rest] * widest <= PAIRS_AT_ONCE) & (np.cumsum(n[rest] + m[rest]) <= ROWS_AT_ONCE)
        taken = max(1, int(np.argmin(is_small)) if not is_small.all() else len(is_small))
        yield np.arange(first, first + taken)
        first += taken


def sentence_vectors(documents: DocumentSet) -> Vectors:
    """Return N x v vectors of documents whose sentence vectors were read."""
    if documents.sentence_vectors is None:
        raise ValueError("the documents' sentence vectors were not read")
    return documents.sentence_vectors


def on(values: Float32, workers: Workers) -> Tensor:
    """Return values on the workers' device."""
    return torch.from_numpy(values).to(workers.device)
