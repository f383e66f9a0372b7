"""Models trained on one data set and judged on others (Li 2022, table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.evaluation.evaluate import MeanScores, evaluate_model
from training.model import LinkModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCell:
    """One model on one data set.

    Attributes:
        model: its address.
        trained_on: NAME@VERSION.
        dataset: NAME@VERSION it is judged on.
        scores: its means, or None where it cannot be judged.
        problem: why not ("" where it can).
    """

    model: str
    trained_on: str
    dataset: str
    scores: MeanScores | None
    problem: str = ""

    @property
    def is_transfer(self) -> bool:
        """Return whether model and data set are of different data sets (versions of one are not)."""
        return self.trained_on.partition("@")[0] != self.dataset.partition("@")[0]


def transfer_cells(
    models: Mapping[str, LinkModel], lake: Lake, references: Sequence[str], split: Split | str = Split.TEST
) -> Iterator[TransferCell]:
    """Yield every model on every data set, model by model.

    A data set without the columns a model reads is no error: its cell says what is missing.

    Args:
        models: address -> model.
        lake: that the data sets are in.
        references: NAME@VERSION each.
        split: of every data set.

    Raises:
        NotFoundError: a data set, version or split is not there.
    """
    for address, model in models.items():
        for reference in references:
            about = {"model": address, "trained_on": model.card.data.reference, "dataset": reference}
            try:
                scores = evaluate_model(model, lake, reference, split).mean
            except NotFoundError:
                raise
            except UsageError as problem:
                yield TransferCell(**about, scores=None, problem=str(problem))
            else:
                yield TransferCell(**about, scores=scores)
