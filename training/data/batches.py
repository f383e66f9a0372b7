"""Batches: the same documents in the same order for any number of workers.

A batch is `b + 1` documents, each the others' negative. It depends on the seed, the epoch and the split's index alone.
No list of an epoch is kept: documents come in a keyed order, a window of them at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from training.data.index import SplitIndex
from training.data.permutation import permuted
from training.data.ragged import Int64, UInt64
from training.data.streams import seed_of, stream

WINDOW = 65_536  # documents; those of one image set are kept apart within a window
PASSED_OVER = 1024  # documents that a batch waits for at most


def batch_count(index: SplitIndex, *, negative_documents: int) -> int:
    """Return how many batches an epoch has: what is left over is dropped, unless it is all there is."""
    return max(1, len(index.usable) // (negative_documents + 1))


def training_batches(index: SplitIndex, *, negative_documents: int, seed: int, epoch: int) -> Iterator[Int64]:
    """Yield the batches of an epoch as index positions, each of `negative_documents + 1` documents.

    The usable documents are permuted; documents of one image set are kept out of one another's batches where that can
    be done, so that each has all its negatives. What is left over at the end is dropped, unless it is all there is.
    """
    size, total = negative_documents + 1, len(index.usable)
    if total <= size:
        yield index.usable[_order(total, seed, epoch)(np.arange(total))]
        return
    order, window = _order(total, seed, epoch), size * max(WINDOW // size, 1)
    for start in range(0, total, window):
        positions = index.usable[order(np.arange(start, min(start + window, total)))]
        yield from _cut(positions, index.image_sets[positions], size)


def validation_bounds(documents: int, *, negative_documents: int) -> Int64:
    """Return where each fixed batch of usable documents begins, and where the last ends.

    Fewer than two documents at the end join the batch before.
    """
    size = negative_documents + 1
    cuts = np.arange(0, documents, size)
    if len(cuts) > 1 and documents - cuts[-1] < 2:
        cuts = cuts[:-1]
    return np.append(cuts, documents)


def _order(total: int, seed: int, epoch: int) -> Callable[[Int64], Int64]:
    """Return the permutation of an epoch: a list of a small split, a keyed function of a large one."""
    if total <= WINDOW:
        order = stream("batches", seed, epoch).permutation(total)
        return lambda places: order[places]
    key = seed_of("batches", seed, epoch)
    return lambda places: permuted(places, total, key)


def _cut(positions: Int64, image_sets: UInt64, size: int) -> Iterator[Int64]:
    """Yield full batches of different image sets; of what cannot be kept apart, full batches all the same."""
    coming = deque(zip(positions.tolist(), image_sets.tolist(), strict=True))
    while len(coming) >= size:
        yield np.array(_draw(coming, size), dtype=np.int64)


def _draw(coming: deque[tuple[int, int]], size: int) -> list[int]:
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
    return batch
