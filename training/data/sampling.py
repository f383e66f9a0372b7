"""At most some of a document's sentences and images in a training step (Hessel 2019, suppl. 2: ten of each).

The sample stands before any objective's own choice: `RowSample` looks to an objective like a set of documents that hold
the sampled rows alone. The draw's stream is keyed by seed, document id, epoch and step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.data.documents import DocumentSet, Int64, offsets_of
from training.data.streams import stream


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSample:
    """B documents with some of their rows, in document order.

    Attributes:
        ids: B document ids.
        sentence_offsets: B + 1 bounds of the documents in `sentences`.
        image_offsets: B + 1 bounds of the documents in `images`.
        sentences: positions within all sentences of the split.
        images: positions within all image places of the split.
    """

    ids: tuple[str, ...]
    sentence_offsets: Int64
    image_offsets: Int64
    sentences: Int64
    images: Int64


def sample_rows(documents: DocumentSet, rows: Int64, *, most: int, seed: int, epoch: int, step: int) -> RowSample:
    """Return at most `most` sentences and images of each of the given documents (by row); 0: all of them."""
    ids = tuple(documents.ids[row] for row in rows)
    sentences: list[Int64] = []
    images: list[Int64] = []
    for name, row in zip(ids, rows, strict=True):
        numbers = stream("rows of a step", seed, name, epoch, step)
        for offsets, kept in ((documents.sentence_offsets, sentences), (documents.image_offsets, images)):
            kept.append(_drawn(int(offsets[row]), int(offsets[row + 1]), most, numbers))
    return RowSample(
        ids=ids,
        sentence_offsets=offsets_of([len(part) for part in sentences]),
        image_offsets=offsets_of([len(part) for part in images]),
        sentences=np.concatenate([np.zeros(0, np.int64), *sentences]),
        images=np.concatenate([np.zeros(0, np.int64), *images]),
    )


def _drawn(start: int, stop: int, most: int, numbers: np.random.Generator) -> Int64:
    """Return the positions start..stop, or a random `most` of them, rising."""
    if not most or stop - start <= most:
        return np.arange(start, stop, dtype=np.int64)
    return np.sort(numbers.permutation(stop - start)[:most]).astype(np.int64) + start
