"""Average precision against scikit-learn; refinement against the paper's formula worked by hand."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from training.evaluation.relations import average_precision, refine_similarities, relation_scores


@pytest.mark.parametrize("levels", [3, 1000])
def test_average_precision_is_scikit_learns_whatever_the_ties(levels):
    numbers = np.random.default_rng(levels)
    scores, is_true = numbers.integers(levels, size=80) / levels, numbers.random(80) < 0.3
    assert average_precision(scores, is_true) == pytest.approx(average_precision_score(is_true, scores))


def test_unknown_labels_are_left_out():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    labels = np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, np.nan], [1.0, np.nan]])
    (score,) = relation_scores(probabilities, labels, ["a", "b"])
    assert score.name == "a" and score.pairs == 3
    assert score.average_precision == pytest.approx(100 * (1 / 2 * 1 + 1 / 2 * 2 / 3))
    assert score.low <= score.average_precision <= score.high
    assert score.rate == pytest.approx(200 / 3)


def test_a_relation_that_is_never_true_has_no_average_precision():
    (score,) = relation_scores(np.array([[0.5]]), np.array([[0.0]]), ["a"])
    assert score.average_precision is None and score.rate == 0.0
    with pytest.raises(ValueError, match="at least one true"):
        average_precision(np.array([0.5]), np.array([False]))


def test_only_difficult_rows_are_refined():
    similarities = np.array([[0.50, 0.45, 0.1], [0.50, 0.40, 0.1], [0.50, 0.39, 0.1]])
    probabilities = np.zeros((3, 3, 2))
    probabilities[:, 0] = [0.5, 0.5]  # not certain of anything
    probabilities[:, 1] = [1.0, 0.9]
    refined = refine_similarities(similarities, probabilities, weight=0.13)
    assert refined[2].tolist() == similarities[2].tolist()
    assert refined[0, 0] == pytest.approx(0.50 * 2)
    assert refined[0, 1] == pytest.approx(0.45 * (np.exp(0.13 * 0.5) + np.exp(0.13 * 0.4)))
    assert refined[0, 2] == pytest.approx(0.10 * 2 * np.exp(0.13 * 0.5))
    wider = refine_similarities(similarities, probabilities, weight=0.13, difficult_below=0.12)
    assert not np.allclose(wider[2], similarities[2])


def test_a_single_candidate_is_never_difficult():
    assert refine_similarities(np.array([[0.3]]), np.ones((1, 1, 2)), weight=1.0).tolist() == [[0.3]]
