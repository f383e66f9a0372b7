"""The objective `closed-form`: two affine maps out of sums over documents and an SVD, without steps along a gradient.

Each epoch is one pass over the documents (`training.closed_form.solver`). Passes make up paths: on each, regularisation
falls and sharpness rises from pass to pass. One path follows the other, each from the start with a regularisation of
its own, and the epoch that is kept is that of the lowest rank of own images among all (`training.select = retrieval`).

Without a pass (`objective.passes = 0`) nothing is solved: two columns of one joint model, such as CLIP's, are compared
as they are, by a model like any other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from schemas.configs import NonNegativeInt, PositiveFloat, PositiveInt, require
from schemas.plugins import SIMILARITIES
from training.closed_form.plans import Order, pair_weights
from training.closed_form.solver import Pass, Solver, Watch
from training.data.loading import TrainingData, joint_size
from training.objectives.batch import EncodedBatch
from training.objectives.term import Term
from training.similarity.similarity import Dc, SetSimilarity, own_blocks
from training.towers.inputs import Tower, Workers
from training.towers.whitening import COLUMN_WEIGHTS, weighted_columns

logger = logging.getLogger(__name__)
ColumnWeight = Annotated[
    str, Meta(pattern=r"^[^=]+=\d+(\.\d+)?$", description="expected COLUMN=WEIGHT, such as colour-shape=0.5")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm(Term):
    """Directions of sentences and images that go together in documents: whitened covariances and soft plans, by turns.

    Attributes:
        similarity: of a sentence set and an image set, by which own sets are ranked.
        passes: passes of a path. 0: sentence and image vectors are of one joint model and stay as they are.
        regularisation: addition to the covariances in the first pass of each path, in mean eigenvalues. More is better
            if each image is in few documents.
        fall: divisor of the regularisation from the first pass of a path to the last.
        sharpness: factor of the cosines before the soft plan, in the first pass of a path.
        rise: factor of the sharpness from the first pass of a path to the last.
        sentence_components: principal components of each column of sentence vectors.
        image_components: principal components of each column of image vectors.
        column_weights: factors of columns, as `COLUMN=WEIGHT` with `*` for any letters; the first match counts, 1
            without a match.
    """

    is_solved = True
    place = 12
    name: str = "closed-form"
    similarity: Annotated[SetSimilarity, SIMILARITIES] = field(default_factory=Dc)
    passes: NonNegativeInt = 8
    regularisation: tuple[PositiveFloat, ...] = (4.0, 16.0)
    fall: PositiveFloat = 4.0
    sharpness: PositiveFloat = 4.0
    rise: PositiveFloat = 3.0
    sentence_components: PositiveInt = 160
    image_components: PositiveInt = 200
    column_weights: tuple[ColumnWeight, ...] = COLUMN_WEIGHTS

    def __post_init__(self) -> None:
        Term.__post_init__(self)
        require(bool(self.regularisation), field=f"{self.part}.regularisation", value=(), rule="expected at least one")

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
    ) -> Solver | AsGiven:
        identity, wanted = data.identity, self.passes * len(self.regularisation)
        if not wanted:
            size = joint_size(identity.sentence_dimensions, identity.image_dimensions)
            rule = f"the vectors have {size} numbers; use --set dimensions={size}"
            require(size <= dimensions, field="dimensions", value=dimensions, rule=rule)
            return AsGiven(text, image, size)
        if epochs < wanted and workers.rank == 0:
            cut = "training.epochs = %d cuts the %d passes of objective.regularisation; use --set training.epochs=%d"
            logger.warning(cut, epochs, wanted, wanted)
        return Solver(
            text=text,
            image=image,
            split=data.training,
            workers=workers,
            columns=(
                weighted_columns(identity.sentence_columns, self.sentence_components, self.column_weights),
                weighted_columns(identity.image_columns, self.image_components, self.column_weights),
            ),
            named=identity.named_columns,
            pass_of=self.pass_of,
            order=order,
        )

    def pass_of(self, epoch: int) -> Pass:
        """Return what an epoch (from 1) is made with; beyond the last path its last pass is repeated."""
        path, number = divmod(epoch - 1, self.passes)
        if path >= len(self.regularisation):
            path, number = len(self.regularisation) - 1, self.passes - 1
        return Pass(
            regularisation=self.regularisation[path] * self.fall ** -self._share(number),
            sharpness=self.sharpness * self.rise ** self._share(number - 1) if number else None,
            number=number,
        )

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return minus the mean cosine of each document's pairs, weighted by its plan at the end of a path."""
        cosines_Bnm = own_blocks(batch.cosines, batch.sentences, batch.images)
        weights_Bnm = pair_weights(cosines_Bnm, batch.sentences, batch.images, self.sharpness * self.rise)
        return -torch.where(weights_Bnm > 0, weights_Bnm * cosines_Bnm, 0.0).sum(dim=(1, 2))

    def _share(self, number: int) -> float:
        """Return how far along its path a pass is, from 0 to 1."""
        return number / max(1, self.passes - 1)


@dataclass(frozen=True, slots=True)
class AsGiven:
    """Leaves sentence and image vectors of one size as they are."""

    text: Tower
    image: Tower
    size: int

    def take(self, epoch: int, watch: Watch) -> dict[str, float]:
        """Set both maps to the identity; return no metric."""
        for tower in (self.text, self.image):
            tower.set_map(torch.eye(self.size), torch.zeros(self.size))
        return {}
