"""Relations of a text and an image (Alikhani 2022): how well they are predicted, and what they do for retrieval.

Shape suffixes: N pairs, R relations, Q queries, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from schemas.configs import NonNegativeFloat, Settings
from schemas.messages import UsageError
from training.data.ragged import Bool, Float32, Float64, Floats, require_finite, stream
from training.metrics.intervals import Score
from training.metrics.retrieval import Adjust
from training.model import LinkModel
from training.parts import LEVEL

RESAMPLES = 1_000
WEIGHT = 0.13  # Alikhani 2022: lambda of eq. 4 for CITE++; 0.12 for CLUE


@dataclass(frozen=True, slots=True)
class RelationPredictor:
    """A head (N text vectors, N image vectors -> N x R logits) and the names of its R relations."""

    head: nn.Module
    names: tuple[str, ...]

    @classmethod
    def of(cls, model: LinkModel) -> RelationPredictor:
        """Return the predictor of a model.

        Raises:
            UsageError: the model predicts no relations.
        """
        if model.relations is None:
            raise UsageError("the model predicts no relations")
        return cls(model.relations, model.card.relations)

    def pairs(self, texts: Floats, images: Floats) -> Float32:
        """Return N x R probabilities of the relations of N texts with N images, row by row."""
        device = next(self.head.parameters()).device
        with torch.inference_mode():
            left, right = (torch.from_numpy(np.ascontiguousarray(rows)).float().to(device) for rows in (texts, images))
            probabilities: Float32 = torch.sigmoid(self.head(left, right)).cpu().numpy()
        return probabilities

    def crossed(self, texts: Floats, images: Floats) -> Float32:
        """Return Q x C x R probabilities of Q texts, each with all C images."""
        return np.stack([self.pairs(np.repeat(text[None], len(images), axis=0), images) for text in texts])


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineConfig(Settings):
    """Settings of selective similarity refinement (Alikhani 2022, eq. 4-6).

    Attributes:
        below: T: a text is refined where its two largest similarities differ by less (A: 0.1; their code: 0.05).
        weight: lambda (A: 0.13 for CITE++, 0.12 for CLUE).
    """

    part: ClassVar[str] = "refine"
    below: NonNegativeFloat = 0.1
    weight: NonNegativeFloat = WEIGHT

    def of(self, model: LinkModel) -> Adjust:
        """Return what refines the similarities of a model.

        Raises:
            UsageError: the model predicts no relations.
        """
        return partial(self.refined, RelationPredictor.of(model))

    def refined(self, predictor: RelationPredictor, similarities: Floats, texts: Floats, images: Floats) -> Float64:
        """Return Q x C refined similarities; relations are predicted for the difficult texts alone.

        A text is difficult where its two largest similarities differ by less than `below`. Its similarities are
        multiplied by the sum over relations of exp(weight x |probability - 0.5|); those of other texts stay.
        """
        refined = np.array(similarities, dtype=np.float64)
        if refined.shape[1] < 2:
            return refined
        top = np.partition(refined, -2, axis=1)[:, -2:]
        for row in np.flatnonzero(top[:, 1] - top[:, 0] < self.below):
            probabilities = predictor.crossed(texts[row : row + 1], images)[0]
            refined[row] *= np.exp(self.weight * np.abs(probabilities.astype(np.float64) - 0.5)).sum(axis=1)
        return refined


def relation_scores(probabilities: Floats, labels: Floats, names: Sequence[str]) -> Iterator[Score]:
    """Yield the average precision of each relation with its 95% bootstrap interval over pairs, and its rate.

    The rate is the share of true labels among the known ones: the average precision of a guess. A relation that is
    never true has no average precision; unknown labels are left out, and a relation with none known is absent.

    Args:
        probabilities: N x R, 0 to 1.
        labels: N x R: 1 true, 0 false, NaN unknown.
        names: of the R relations.

    Raises:
        UsageError: a probability is not finite.

    >>> scores = relation_scores(np.array([[0.9], [0.2]]), np.array([[1.0], [0.0]]), ["story"])
    >>> [(score.metric, score.value) for score in scores]
    [('average_precision', 100.0), ('rate', 50.0)]
    """
    require_finite(probabilities, "probabilities of relations")
    for column, name in enumerate(names):
        is_labelled = ~np.isnan(labels[:, column])
        scores, is_true = probabilities[is_labelled, column], labels[is_labelled, column] > 0
        pairs = int(is_labelled.sum())
        if not pairs:
            continue
        low = high = value = None
        if is_true.any():
            numbers = stream("relations", 0, name)
            drawn = (numbers.integers(pairs, size=pairs) for _ in range(RESAMPLES))
            values = [100 * average_precision(scores[rows], is_true[rows]) for rows in drawn if is_true[rows].any()]
            low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
            value = 100 * average_precision(scores, is_true)
        yield Score("average_precision", value, low, high, pairs, name)
        yield Score("rate", 100 * float(is_true.mean()), n=pairs, group=name)


def average_precision(scores: Floats, is_true: Bool) -> float:
    """Return the area under the precision-recall steps, 0 to 1: sum over thresholds of recall gained x precision there.

    Equal scores are one threshold, so the order of ties does not matter.

    Raises:
        ValueError: nothing is true.

    >>> average_precision(np.array([0.9, 0.8, 0.1]), np.array([True, False, True]))
    0.8333333333333333
    """
    if not is_true.any():
        raise ValueError("expected at least one true label, found none")
    _, steps = np.unique(-np.asarray(scores, np.float64), return_inverse=True)
    taken = np.cumsum(np.bincount(steps))
    gained = np.bincount(steps, weights=is_true)
    return float(np.sum(gained * np.cumsum(gained) / taken) / is_true.sum())
