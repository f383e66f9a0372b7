"""Curves of probability against scikit-learn, and against the probability that results were drawn with."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from training.metrics.curves import fit_curve, fit_isotonic, fit_sigmoid


def drawn(count, seed=0):
    """Results that are right with probability sigmoid(6 s - 2)."""
    numbers = np.random.default_rng(seed)
    similarities = numbers.random(count)
    return similarities, numbers.random(count) < expit(6 * similarities - 2)


def test_sigmoid_is_a_logistic_regression_on_platts_targets():
    similarities, are_right = drawn(500)
    right, wrong = are_right.sum(), (~are_right).sum()
    targets = np.where(are_right, (right + 1) / (right + 2), 1 / (wrong + 2))
    x = np.tile(similarities, 2)[:, None]
    y = np.repeat([1, 0], 500)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x, y, np.concatenate([targets, 1 - targets]))
    slope, intercept = fit_sigmoid(similarities[:, None], are_right)
    assert slope == pytest.approx(peer.coef_[0, 0], rel=1e-4)
    assert intercept == pytest.approx(peer.intercept_[0], rel=1e-4)


@pytest.mark.parametrize("are_right", [np.array([False, False, True, True]), np.ones(4, bool), np.zeros(4, bool)])
def test_a_sigmoid_of_few_results_is_finite_and_between_0_and_1(are_right):
    curve = fit_curve(np.array([0.1, 0.2, 0.8, 0.9]), are_right)
    probabilities = curve.probability(np.array([-1.0, 0.5, 1.0]))
    assert np.isfinite(probabilities).all() and (probabilities > 0).all() and (probabilities < 1).all()


def test_isotonic_is_scikit_learns():
    similarities, are_right = drawn(1500)
    similarities = np.round(similarities, 2)  # with ties
    peer = IsotonicRegression(out_of_bounds="clip").fit(similarities, are_right)
    curve = fit_curve(similarities, are_right)
    queries = np.linspace(-0.2, 1.2, 200)
    assert curve.probability(queries) == pytest.approx(peer.predict(queries), abs=1e-9)
    assert 0 < len(curve.similarities) < len(np.unique(similarities))


def test_isotonic_of_one_similarity_is_its_share():
    assert fit_isotonic(np.full(4, 0.3), np.array([True, False, True, True])) == ((0.3,), (0.75,))


@pytest.mark.parametrize("count", [999, 20_000])
def test_both_kinds_find_the_probability_the_results_were_drawn_with(count):
    curve = fit_curve(*drawn(count))
    queries = np.linspace(0.05, 0.95, 10)
    assert bool(curve.similarities) == (count > 999)
    assert curve.probability(queries) == pytest.approx(expit(6 * queries - 2), abs=0.05)
