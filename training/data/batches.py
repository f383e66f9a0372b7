"""Batches: the same documents in the same order for any number of workers.

A batch is `b + 1` documents, each the others' negative. It depends on the seed, the epoch and the split's index alone.
No list of an epoch is kept: of a large split, documents come a window of some shards at a time.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np

from training.data.index import SplitIndex
from training.data.ragged import Int64
from training.data.streams import stream

WINDOW = 65_536  # documents that are shuffled together; of a larger split, those of shards drawn at random
PASSED_OVER = 1024  # documents that a batch waits for at most


def batch_count(index: SplitIndex, *, negative_documents: int) -> int:
    """Return how many batches an epoch has: what is left over is dropped, unless it is all there is."""
    return max(1, len(index.usable) // (negative_documents + 1))


def training_batches(index: SplitIndex, *, negative_documents: int, seed: int, epoch: int) -> Iterator[Int64]:
    """Yield the batches of an epoch as index positions, each of `negative_documents + 1` documents.

    Documents of one image set are kept out of one another's batches where that can be done, so that each has all its
    negatives. What is left over at the end is dropped, unless it is all there is.
    """
    size, total = negative_documents + 1, len(index.usable)
    coming: deque[tuple[int, int]] = deque()
    for positions in _windows(index, seed, epoch):
        if total <= size:
            yield positions
            return
        while len(coming) >= size + PASSED_OVER:
            yield _draw(coming, size)
        coming.extend(zip(positions.tolist(), index.image_sets[positions].tolist(), strict=True))
    while len(coming) >= size:
        yield _draw(coming, size)


def validation_bounds(documents: int, *, negative_documents: int) -> Int64:
    """Return where each fixed batch of usable documents begins, and where the last ends.

    Fewer than two documents at the end join the batch before.
    """
    size = negative_documents + 1
    cuts = np.arange(0, documents, size)
    if len(cuts) > 1 and documents - cuts[-1] < 2:
        cuts = cuts[:-1]
    return np.append(cuts, documents)


def _windows(index: SplitIndex, seed: int, epoch: int) -> Iterator[Int64]:
    """Yield all usable positions, shuffled: at once, or of a large split those of some shards at a time.

    So an epoch reads every shard once, and few of them at a time.
    """
    usable, shards = index.usable, index.shards
    if len(usable) <= WINDOW:
        yield usable[stream("batches", seed, epoch).permutation(len(usable))]
        return
    order = stream("batches", seed, epoch).permutation(len(shards))
    bounds = np.searchsorted(usable, shards.offsets)
    ends = np.cumsum(shards.sizes(order)) - 1
    for number, window in enumerate(np.split(order, np.flatnonzero(np.diff(ends // WINDOW)) + 1)):
        positions = np.concatenate([usable[bounds[shard] : bounds[shard + 1]] for shard in window])
        yield positions[stream("batches", seed, epoch, number).permutation(len(positions))]


def _draw(coming: deque[tuple[int, int]], size: int) -> Int64:
    """Take `size` documents of different image sets from the front; those passed over stay at the front.

    Where a batch cannot be filled, it takes the first of those that were passed over.
    """
    batch: list[int] = []
    passed: deque[tuple[int, int]] = deque()
    taken: set[int] = set()
    while coming and len(batch) < size and len(passed) < max(PASSED_OVER, size):
        position, image_set = coming.popleft()
        if image_set in taken:
            passed.append((position, image_set))
        else:
            batch.append(position)
            taken.add(image_set)
    batch += [passed.popleft()[0] for _ in range(size - len(batch))]
    coming.extendleft(reversed(passed))
    return np.array(batch, dtype=np.int64)
