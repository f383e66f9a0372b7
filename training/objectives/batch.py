"""What an objective sees: documents to choose rows from before they are encoded, and the encoded batch of all workers.

Choosing comes first so that an objective that uses a few rows of a document (NoStruct) does not pay for the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from training.config import ObjectiveConfig
from training.data.ragged import Int64, Ragged
from training.data.sampling import Choice, Documents, choose_all
from training.similarity.sets import blocks_similarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a draw is made: split, epoch and step; with seed and document id it is the whole key of a random draw."""

    split: str
    epoch: int
    step: int


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
    """A global batch of B documents in the joint space. Rows can be chosen from it again.

    Attributes:
        ids: B document ids.
        sentences: which of the N chosen sentences are of which document.
        images: which of the M chosen images are of which document.
        text_vectors: N x d unit vectors of the sentences.
        image_vectors: M x d unit vectors of the images.
        allowed: B x B, whether document `j` may be a negative of document `i`: not itself, not of the same image set.
        moment: when it is encoded.
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
    moment: Moment = START
    relations: Relations | None = None
    links: tuple[Int64 | None, ...] | None = None
    _similarities: dict[ObjectiveConfig, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def cosines(self) -> Tensor:
        """Return the N x M cosines of all sentences with all images; every term of an objective starts from them."""
        return self.text_vectors @ self.image_vectors.T

    def similarity(self, config: ObjectiveConfig) -> Tensor:
        """Return the B x B similarities of all sentence sets with all image sets, computed once a batch."""
        if config not in self._similarities:
            self._similarities[config] = blocks_similarity(
                self.cosines,
                self.sentences,
                self.images,
                config.similarity,
                k=config.k,
                combine=config.combine,
                matching=config.matching,
                solver=config.solver,
            )
        return self._similarities[config]


@dataclass(frozen=True, slots=True)
class Objective(ABC):
    """A term that can be minimised: what it needs encoded, and its losses.

    Attributes:
        reads: of an objective of another package, the settings of `ObjectiveConfig` that it reads.
        options: its own settings, with what they are by default; `config.option(name)` returns one.
        config: its settings.
        seed: keys its random draws.
    """

    reads: ClassVar[Collection[str]] = ()
    options: ClassVar[Mapping[str, float]] = MappingProxyType({})

    config: ObjectiveConfig
    seed: int = 0

    def choose(self, documents: Documents, chosen: Int64, moment: Moment) -> Choice:
        """Return which sentences and images of some documents take part: all of them, unless the objective draws."""
        return choose_all(documents, chosen)

    @abstractmethod
    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses, one a document."""
