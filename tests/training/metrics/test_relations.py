"""Average precision against scikit-learn; refinement against the paper's formula worked by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

from training.metrics.relations import (
    RefineConfig,
    RelationPredictor,
    average_precision,
    relation_scores,
)


@pytest.mark.parametrize("levels", [3, 1000])
def test_average_precision_is_scikit_learns_whatever_the_ties(levels):
    numbers = np.random.default_rng(levels)
    scores, is_true = numbers.integers(levels, size=80) / levels, numbers.random(80) < 0.3
    assert average_precision(scores, is_true) == pytest.approx(average_precision_score(is_true, scores))


def test_unknown_labels_are_left_out():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    labels = np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, np.nan], [1.0, np.nan]])
    score, rate = relation_scores(probabilities, labels, ["a", "b"])
    assert (score.metric, score.group, score.n) == ("average_precision", "a", 3)
    assert score.value == pytest.approx(100 * (1 / 2 * 1 + 1 / 2 * 2 / 3))
    assert score.low <= score.value <= score.high
    assert (rate.metric, rate.group, rate.value) == ("rate", "a", pytest.approx(200 / 3))


def test_a_relation_that_is_never_true_has_no_average_precision():
    score, rate = relation_scores(np.array([[0.5]]), np.array([[0.0]]), ["a"])
    assert score.value is None and rate.value == 0.0
    with pytest.raises(ValueError, match="at least one true"):
        average_precision(np.array([0.5]), np.array([False]))


def refined_by_hand(similarities, probabilities, *, weight, difficult_below):
    """Equations 4 to 6, a row at a time."""
    rows = []
    for row, own in zip(similarities, probabilities, strict=True):
        second, first = sorted(row)[-2:]
        confidence = [sum(np.exp(weight * abs(p - 0.5)) for p in pair) for pair in own]
        rows.append(row * confidence if first - second < difficult_below else row)
    return np.array(rows)


class Head(nn.Module):
    """One affine map of both vectors, as the models' own."""

    def __init__(self, dimensions, relations):
        super().__init__()
        self.affine = nn.Linear(2 * dimensions, relations)
        self.rows = 0

    def forward(self, texts, images):
        self.rows += len(texts)
        return self.affine(torch.cat([texts, images], dim=1))


def made(texts=6, images=5):
    torch.manual_seed(0)
    numbers = np.random.default_rng(0)
    vectors = (numbers.normal(size=(count, 4)).astype(np.float32) for count in (texts, images))
    text, image = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in vectors)
    return RelationPredictor(Head(4, 3), ("a", "b", "c")), text, image


def test_crossed_probabilities_are_those_of_every_pair():
    predictor, texts, images = made()
    crossed = predictor.crossed(texts, images)
    assert crossed.shape == (6, 5, 3) and (crossed > 0).all() and (crossed < 1).all()
    assert np.allclose(crossed[2, 3], predictor.pairs(texts[2:3], images[3:4])[0])


def test_refinement_is_the_formula_on_difficult_rows_and_predicts_no_others():
    predictor, texts, images = made()
    similarities, crossed = texts @ images.T, predictor.crossed(texts, images)
    for below in (0.1, 0.2):
        expected = refined_by_hand(similarities, crossed, weight=0.12, difficult_below=below)
        predictor.head.rows = 0
        found = RefineConfig(weight=0.12, below=below).refined(predictor, similarities, texts, images)
        assert np.allclose(found, expected)
        changed = int((expected != similarities).any(axis=1).sum())
        assert 0 < changed < 6 and predictor.head.rows == changed * 5


def test_a_single_candidate_is_never_difficult():
    predictor, texts, images = made(images=1)
    assert RefineConfig().refined(predictor, np.array([[0.3]]), texts[:1], images).tolist() == [[0.3]]
