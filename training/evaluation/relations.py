"""Relations of a text and an image (Alikhani 2022): how well they are predicted, and what they do for retrieval.

Which model predicts them is no matter here: these are functions of probabilities, labels and similarities. Shape
suffixes: N pairs, R relations, Q queries, C candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.streams import stream

Float = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
RESAMPLES = 1_000
DIFFICULT_BELOW = 0.1  # Alikhani 2022: T, "chosen as 0.1 empirically"; their code: 0.05
REFINEMENT_WEIGHTS: Mapping[str, float] = {"cite": 0.13, "clue": 0.12}  # Alikhani 2022: lambda of eq. 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationScore:
    """How well one relation is predicted.

    Attributes:
        name: relation.
        average_precision: percent; None where no known label is true.
        low: lower end of its 95% bootstrap interval over pairs.
        high: upper end.
        rate: share of true labels among the known ones, percent: the average precision of a guess.
        pairs: pairs whose label is known.
    """

    name: str
    average_precision: float | None
    low: float | None
    high: float | None
    rate: float
    pairs: int


def relation_scores(
    probabilities: Float, labels: Float, names: Sequence[str], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[RelationScore, ...]:
    """Return the average precision of each relation; unknown labels are left out, a relation with none known is absent.

    Args:
        probabilities: N x R, 0 to 1.
        labels: N x R: 1 true, 0 false, NaN unknown.
        names: of the R relations.
        seed: of the bootstrap samples.
        resamples: number of them.
    """
    found = []
    for column, name in enumerate(names):
        known = ~np.isnan(labels[:, column])
        if known.any():
            found.append(_score(name, probabilities[known, column], labels[known, column] > 0, seed, resamples))
    return tuple(found)


def average_precision(scores: Float, is_true: Bool) -> float:
    """Return the area under the precision-recall steps, 0 to 1: sum over thresholds of recall gained x precision there.

    Equal scores are one threshold, so the order of ties does not matter.

    Raises:
        ValueError: nothing is true.
    """
    if not is_true.any():
        raise ValueError("expected at least one true label, found none")
    _, places = np.unique(-np.asarray(scores, np.float64), return_inverse=True)
    taken = np.cumsum(np.bincount(places))
    gained = np.bincount(places, weights=is_true)
    return float(np.sum(gained * np.cumsum(gained) / taken) / is_true.sum())


def refine_similarities(
    similarities: Float, probabilities: Float, *, weight: float, difficult_below: float = DIFFICULT_BELOW
) -> Float64:
    """Return Q x C similarities after selective similarity refinement (Alikhani 2022, eq. 4-6).

    A row is difficult where its two largest similarities differ by less than `difficult_below`. In such rows each
    similarity is multiplied by the sum over relations of exp(weight x |probability - 0.5|); other rows stay.

    Args:
        similarities: Q x C cosines.
        probabilities: Q x C x R, of each query's relations with each candidate.
        weight: lambda; `REFINEMENT_WEIGHTS` has the paper's.
        difficult_below: T.
    """
    values = np.asarray(similarities, dtype=np.float64)
    if values.shape[1] < 2:
        return values.copy()
    top = np.partition(values, -2, axis=1)[:, -2:]
    is_difficult = top[:, 1] - top[:, 0] < difficult_below
    confidence = np.exp(weight * np.abs(np.asarray(probabilities, np.float64) - 0.5)).sum(axis=2)
    return np.where(is_difficult[:, None], values * confidence, values)


def _score(name: str, scores: Float, is_true: Bool, seed: int, resamples: int) -> RelationScore:
    rate, pairs = 100 * float(is_true.mean()), len(is_true)
    if not is_true.any():
        return RelationScore(name=name, average_precision=None, low=None, high=None, rate=rate, pairs=pairs)
    numbers = stream("relations", seed, name)
    drawn = (numbers.integers(pairs, size=pairs) for _ in range(resamples))
    values = [average_precision(scores[rows], is_true[rows]) for rows in drawn if is_true[rows].any()]
    low, high = np.quantile(values, [0.025, 0.975])
    return RelationScore(
        name=name,
        average_precision=100 * average_precision(scores, is_true),
        low=100 * float(low),
        high=100 * float(high),
        rate=rate,
        pairs=pairs,
    )
