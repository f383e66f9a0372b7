"""What an objective sees: documents to choose rows from before they are encoded, and the encoded batch of all workers.

Choosing comes first so that an objective that uses a few rows of a document (NoStruct) does not pay for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from training.data.documents import Int64, offsets_of, ragged_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a draw is made: split, epoch and step; with seed and document id it is the whole key of a random draw."""

    split: str
    epoch: int
    step: int


class Ragged(Protocol):
    """Documents by id, with the bounds of their sentences and images; a `DocumentSet` or a `SplitIndex`."""

    @property
    def ids(self) -> tuple[str, ...]: ...

    @property
    def sentence_offsets(self) -> Int64: ...

    @property
    def image_offsets(self) -> Int64: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which sentences and images of some documents take part.

    Attributes:
        sentences: positions within all sentences, document by document.
        sentence_counts: how many of them each document has.
        images: positions within all images, document by document.
        image_counts: how many of them each document has.
    """

    sentences: Int64
    sentence_counts: Int64
    images: Int64
    image_counts: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A global batch of B documents in the joint space.

    Attributes:
        texts: N x d unit vectors of the chosen sentences, document by document.
        images: M x d unit vectors of the chosen images, document by document.
        sentence_counts: B numbers of sentences.
        image_counts: B numbers of images.
        allowed: B x B, whether document `j` may be a negative of document `i`: not itself, not of the same image set.
    """

    texts: Tensor
    images: Tensor
    sentence_counts: Int64
    image_counts: Int64
    allowed: Tensor

    @property
    def text_offsets(self) -> Int64:
        return offsets_of(self.sentence_counts)

    @property
    def image_offsets(self) -> Int64:
        return offsets_of(self.image_counts)


class Objective(Protocol):
    """An objective: what it needs encoded, and its losses."""

    def choose(self, documents: Ragged, rows: Int64, moment: Moment) -> Choice:
        """Return which sentences and images of the given documents (by row) take part."""
        ...

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses, one a document."""
        ...


def choose_all(documents: Ragged, rows: Int64) -> Choice:
    """Return every sentence and every image of the given documents."""
    return Choice(
        sentences=ragged_positions(documents.sentence_offsets, rows),
        sentence_counts=np.diff(documents.sentence_offsets)[rows],
        images=ragged_positions(documents.image_offsets, rows),
        image_counts=np.diff(documents.image_offsets)[rows],
    )
