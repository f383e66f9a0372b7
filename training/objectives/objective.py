"""An objective is a sum of terms over the same batch (Li 2022, eq. 5; Alikhani 2022, eq. 3)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.closed_form.order import Order
from training.data.loading import TrainingData
from training.data.ragged import Int64
from training.data.sampling import Choice, Documents, choose_all
from training.objectives.batch import DrawKey, EncodedBatch, Solver
from training.objectives.term import Term
from training.towers.inputs import Tower, Workers


def choose(terms: Sequence[Term], documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice:
    """Return which rows of some documents an objective needs encoded: of several terms, all."""
    choice = terms[0].choose(documents, chosen, draw_key) if len(terms) == 1 else None
    return choose_all(documents, chosen) if choice is None else choice


def losses(terms: Sequence[Term], batch: EncodedBatch) -> Tensor:
    """Return the B losses of an objective, the sums of its terms'."""
    return torch.stack([each.losses(batch) for each in terms]).sum(dim=0)


def solver(
    terms: Sequence[Term],
    text: Tower,
    image: Tower,
    data: TrainingData,
    workers: Workers,
    *,
    epochs: int,
    order: Order | None,
) -> Solver | None:
    """Return what sets the maps of the towers in the place of steps, where a term does."""
    solvers = (each.solver(text, image, data, workers, epochs=epochs, order=order) for each in terms)
    return next((each for each in solvers if each is not None), None)
