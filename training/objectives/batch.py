"""What an objective sees: documents to choose rows from before they are encoded, and the encoded batch of all workers.

Choosing comes first so that an objective that uses a few rows of a document (NoStruct) does not pay for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from torch import Tensor

from training.config import ObjectiveConfig
from training.data.documents import Int64, offsets_of, ragged_positions
from training.similarity import blocks_similarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a draw is made: split, epoch and step; with seed and document id it is the whole key of a random draw."""

    split: str
    epoch: int
    step: int


class Ragged(Protocol):
    """Documents by id, with the bounds of their sentences and images.

    A `DocumentSet`, a `SplitIndex` or an `EncodedBatch` is one.
    """

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

    @property
    def sentence_offsets(self) -> Int64:
        """Return the bounds of each document's chosen sentences among all that are chosen."""
        return offsets_of(self.sentence_counts)

    @property
    def image_offsets(self) -> Int64:
        """Return the bounds of each document's chosen images among all that are chosen."""
        return offsets_of(self.image_counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """Relations of B documents of one text and one image (Alikhani 2022), R of them.

    Attributes:
        logits: B x R, predicted.
        labels: B x R, 1 true, 0 false, NaN unknown.
        weights: R, of the relations in the loss.
    """

    logits: Tensor
    labels: Tensor
    weights: Tensor


START = Moment(split="training", epoch=0, step=0)


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """A global batch of B documents in the joint space. It is `Ragged` too: rows can be chosen from it again.

    Attributes:
        ids: B document ids.
        texts: N x d unit vectors of the chosen sentences, document by document.
        images: M x d unit vectors of the chosen images, document by document.
        sentence_counts: B numbers of sentences.
        image_counts: B numbers of images.
        allowed: B x B, whether document `j` may be a negative of document `i`: not itself, not of the same image set.
        moment: when it is encoded.
        relations: of the documents, where the objective reads them.
        links: per document its L x 2 (sentence, image) links, None where they are not shown; None as a whole for every
            objective but `supervised`.
    """

    ids: tuple[str, ...]
    texts: Tensor
    images: Tensor
    sentence_counts: Int64
    image_counts: Int64
    allowed: Tensor
    moment: Moment = START
    relations: Relations | None = None
    links: tuple[Int64 | None, ...] | None = None
    _similarities: dict[ObjectiveConfig, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.sentence_counts)

    @cached_property
    def sentence_offsets(self) -> Int64:
        return offsets_of(self.sentence_counts)

    @cached_property
    def image_offsets(self) -> Int64:
        return offsets_of(self.image_counts)

    @cached_property
    def cosines(self) -> Tensor:
        """Return the N x M cosines of all sentences with all images; every term of an objective starts from them."""
        return self.texts @ self.images.T

    def similarity(self, config: ObjectiveConfig) -> Tensor:
        """Return the B x B similarities of all sentence sets with all image sets, computed once a batch."""
        if config not in self._similarities:
            self._similarities[config] = blocks_similarity(
                self.cosines,
                self.sentence_offsets,
                self.image_offsets,
                config.similarity,
                k=config.k,
                combine=config.combine,
                matching=config.matching,
            )
        return self._similarities[config]


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
