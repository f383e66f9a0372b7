"""A term of an objective: its settings, and its losses out of an encoded batch.

A term is a class of `training/objectives/`. This module imports no framework: a configuration is made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from schemas.plugins import OBJECTIVES, Group
from training.parts import PartSettings

if TYPE_CHECKING:
    from torch import Tensor

    from training.closed_form.plans import Order
    from training.data.loading import TrainingData
    from training.data.ragged import Choice, Documents, Int64
    from training.objectives.batch import DrawKey, EncodedBatch, Solver
    from training.similarity.similarity import SetSimilarity
    from training.towers.inputs import Tower, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(PartSettings, ABC):
    """Settings of a term of an objective, and its losses.

    Attributes:
        place: of its name in a sum, from the smallest; equal ones by the alphabet.
        spellings: other names of it, or of a sum with it.
        is_addition: whether the term is added to others, and is no objective alone.
        is_solved: whether maps are solved for, by what `solver` gives: no optimiser is made, and the last epoch is a
            good one without validation documents.
        drops_signs: whether models are trained with vectors that have lost their signs.
    """

    group: ClassVar[Group] = OBJECTIVES
    part: ClassVar[str] = "objective"
    place: ClassVar[int] = 100
    spellings: ClassVar[Mapping[str, str]] = {}
    is_addition: ClassVar[bool] = False
    is_solved: ClassVar[bool] = False
    drops_signs: ClassVar[bool] = False

    @property
    def similarity(self) -> SetSimilarity | None:
        """Return what it compares sentence sets and image sets by; None: it compares none."""
        return None

    @property
    def negatives(self) -> str | None:
        """Return how the negatives of a document count; None: in one way only."""
        return None

    def choose(self, documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice | None:
        """Return which sentences and images of some documents take part; None: all of them."""
        return None

    @abstractmethod
    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses, one a document."""

    def solver(
        self,
        text: Tower,
        image: Tower,
        data: TrainingData,
        workers: Workers,
        *,
        dimensions: int,
        epochs: int,
        order: Order | None,
    ) -> Solver | None:
        """Return what sets the maps of two towers, once an epoch; None: steps along the gradient of the losses do."""
        return None
