"""Documents in memory in the place of a split of a data set version, for benchmarks and tests."""

import numpy as np

from training.data.documents import DocumentSet
from training.data.ragged import Int64, Ragged
from training.data.split import SplitIndex, TrainingSplit


class HeldSplit(TrainingSplit):
    """Documents in memory as a split of one shard.

    Args:
        held: all its documents.
    """

    def __init__(self, held: DocumentSet) -> None:
        self.held = held
        self.index = SplitIndex(
            shards=Ragged.of([len(held)]),
            sentences=held.sentences,
            images=held.images,
            image_sets=held.image_sets,
            usable=np.flatnonzero((held.sentences.counts > 0) & (held.images.counts > 0)),
        )

    def documents(self, positions: Int64) -> DocumentSet:
        return self.held.take_documents(positions)

    def shard(self, number: int) -> DocumentSet:
        return self.held
