"""What a term of an objective sees: when a draw is made, and the encoded batch.

Rows are chosen before they are encoded, so that an objective that uses a few rows of a document (NoStruct) does not pay
for the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from torch import Tensor

from schemas.messages import UsageError
from training.data.ragged import Int64, Ragged, stream
from training.similarity.similarity import SetSimilarity


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawKey:
    """When a draw is made: with a document's id it is the whole key of a random draw.

    Attributes:
        split: that is passed over.
        epoch: from 1 in training.
        step: of the epoch, from 0.
        seed: of the run.
    """

    split: str
    epoch: int
    step: int
    seed: int = 0

    def numbers(self, name: str, document: str) -> np.random.Generator:
        """Return the random numbers of a named draw for a document."""
        return stream(name, self.seed, self.split, document, self.epoch, self.step)


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


START = DrawKey(split="training", epoch=0, step=0)


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """A batch of B documents in the joint space. Rows can be chosen from it again.

    Attributes:
        ids: B document ids.
        sentences: which of the N chosen sentences are of which document.
        images: which of the M chosen images are of which document.
        text_vectors: N x d unit vectors of the sentences.
        image_vectors: M x d unit vectors of the images.
        allowed: B x B, whether document `j` may be a negative of document `i`: not itself, not of the same image set.
        draw_key: when it is encoded.
        relations: of the documents, where the objective reads them.
        links: per document its L x 2 (sentence, image) links, None where they are not shown; None as a whole for every
            objective but `supervised`.
    """

    ids: tuple[str, ...]
    sentences: Ragged
    images: Ragged
    text_vectors: Tensor
    image_vectors: Tensor
    allowed: Tensor
    draw_key: DrawKey = START
    relations: Relations | None = None
    links: tuple[Int64 | None, ...] | None = None
    _similarities: dict[SetSimilarity, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def cosines(self) -> Tensor:
        """Return the N x M cosines of all sentences with all images; every term of an objective starts from them."""
        return self.text_vectors @ self.image_vectors.T

    def similarity(self, kind: SetSimilarity) -> Tensor:
        """Return the B x B similarities of all sentence sets with all image sets, computed once a batch."""
        if kind not in self._similarities:
            self._similarities[kind] = kind.blocks(self.cosines, self.sentences, self.images)
        return self._similarities[kind]


class Solver(Protocol):
    """Sets the towers' maps by reading the training documents."""

    def take(self, epoch: int, watch: Callable[[int], None]) -> dict[str, float]:
        """Take one pass over the training documents, and return its metrics.

        Args:
            epoch: from 1.
            watch: takes the number of documents that this worker has read since it was called last.
        """
        ...


def check_pairs(batch: EncodedBatch, name: str) -> None:
    """Raise a `UsageError` unless every document of a batch is one text and one image."""
    for id_, n, m in zip(batch.ids, batch.sentences.counts.tolist(), batch.images.counts.tolist(), strict=True):
        if (n, m) != (1, 1):
            raise UsageError(f"objective '{name}': document {id_} has {n} texts and {m} images, expected one of each")
