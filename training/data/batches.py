"""Global batches: the same documents in the same order for any number of workers.

A batch is `b + 1` documents, each the others' negative. It depends on the seed, the epoch and the split's index alone;
which worker encodes which of its documents is the data's business (`HeldSplit.held`).
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from training.data.documents import SplitIndex
from training.data.ragged import Int64
from training.data.streams import stream


def training_batches(index: SplitIndex, *, negative_documents: int, seed: int, epoch: int) -> list[Int64]:
    """Return the batches of one epoch as index positions, each of `negative_documents + 1` documents.

    The usable documents are permuted; documents of one image set are kept out of one another's batches where that can
    be done, so that each has all its negatives. What is left over at the end is dropped, unless it is all there is.
    """
    usable = index.usable
    order = usable[stream("batches", seed, epoch).permutation(len(usable))]
    size = negative_documents + 1
    if len(order) <= size:
        return [order]
    return list(_cut(order, index.image_sets, size))


def validation_batches(index: SplitIndex, *, negative_documents: int) -> list[Int64]:
    """Return fixed batches in index order; fewer than two documents at the end join the batch before."""
    order = index.usable
    size = negative_documents + 1
    cuts = list(range(size, len(order), size))
    if cuts and len(order) - cuts[-1] < 2:
        cuts.pop()
    bounds = [0, *cuts, len(order)]
    return [order[start:stop] for start, stop in pairwise(bounds)]


def _cut(order: Int64, image_sets: tuple[str, ...], size: int) -> Iterator[Int64]:
    """Yield full batches of different image sets; at the end, full batches of what could not be kept apart."""
    coming: deque[int] = deque(order.tolist())
    while True:
        batch = _draw(coming, image_sets, size)
        if len(batch) < size:
            break
        yield np.array(batch, dtype=np.int64)
    rest = [*batch, *coming]
    for start in range(0, len(rest) - size + 1, size):
        yield np.array(rest[start : start + size], dtype=np.int64)


def _draw(coming: deque[int], image_sets: tuple[str, ...], size: int) -> list[int]:
    """Take up to `size` documents of different image sets from the front; those passed over stay at the front."""
    batch: list[int] = []
    passed: list[int] = []
    taken: set[str] = set()
    while coming and len(batch) < size:
        position = coming.popleft()
        if image_sets[position] in taken:
            passed.append(position)
        else:
            batch.append(position)
            taken.add(image_sets[position])
    coming.extendleft(reversed(passed))
    return batch
