"""Relations of a text and an image (Alikhani 2022): the head that predicts them, their labels and rates.

The head is part of the model and saved with it; its loss is `training.objectives.labelled`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from schemas.errors import UsageError
from training.data.ragged import Float32

Labels = Mapping[str, bool | None]
ALL = "all"
_TRUE, _FALSE = "true ", "false "


class RelationHead(nn.Module):
    """N text and N image vectors of `dimensions` numbers -> N x R logits: one affine map of both (Alikhani 2022, 3).

    `weights` (R, saved with it) are the reciprocals of the relations' rates in the training split.
    """

    weights: Tensor

    def __init__(self, relations: int, dimensions: int) -> None:
        super().__init__()
        self.affine = nn.Linear(2 * dimensions, relations)
        self.register_buffer("weights", torch.ones(relations))

    def set_rates(self, rates: Sequence[float]) -> None:
        """Take the shares of true labels, all above 0, as what the loss is balanced by."""
        self.weights.copy_(1 / torch.tensor(rates))

    def forward(self, texts_ND: Tensor, images_ND: Tensor) -> Tensor:
        logits_NR: Tensor = self.affine(torch.cat([texts_ND, images_ND], dim=1)).float()
        return logits_NR


def label_matrix(relations: Sequence[Labels], names: Sequence[str]) -> Float32:
    """Return D x R labels: 1 true, 0 false, NaN unknown or not given."""
    rows = [[np.nan if (value := row.get(name)) is None else float(value) for name in names] for row in relations]
    return np.array(rows, dtype=np.float32).reshape(len(relations), len(names))


def count_labels(relations: Sequence[Labels]) -> Counter[str]:
    """Return how often each relation is true and how often it is false, as one flat table that can be summed."""
    return Counter(
        (_TRUE if value else _FALSE) + name for row in relations for name, value in row.items() if value is not None
    )


def known_rates(counts: Mapping[str, int], *, wanted: str, reference: str) -> dict[str, float]:
    """Return the share of true labels of each relation that is predicted, by name, in alphabetical order.

    Args:
        counts: as `count_labels` gives them, over the whole training split.
        wanted: `all`, or one name. With `all`, a relation that is never true is left out: it has no weight.
        reference: data set, for the error.

    Raises:
        UsageError: no relation is left, or the one asked for is not there or never true.
    """
    true = {key.removeprefix(_TRUE): count for key, count in counts.items() if key.startswith(_TRUE)}
    rates = {name: true[name] / (true[name] + counts.get(_FALSE + name, 0)) for name in sorted(true)}
    if wanted != ALL and wanted not in rates:
        available = ", ".join(rates) or "none"
        raise UsageError(
            f"objective.relations = '{wanted}': no training document of {reference} has it; it has {available}"
        )
    if not rates:
        raise UsageError(
            f"objective 'coherence': no training document of {reference} has a relation; train on one that has "
            "(cite, clue), or set objective.name=triplet-hardest"
        )
    return rates if wanted == ALL else {wanted: rates[wanted]}
