"""Spread by hand; regressions against scikit-learn and scipy; rank correlation against scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from training.metrics.spread import analyse_documents, content, regress, spearman, spread


def test_spread_of_worked_examples():
    assert spread(np.array([[2.0, 0.0], [0.5, 0.0]])) == 0.0  # same direction, other lengths
    assert spread(np.array([[1.0, 0.0], [-3.0, 0.0]])) == pytest.approx(1.0)
    assert spread(np.array([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(0.5)
    assert spread(np.array([[0.0, 0.0], [1.0, 0.0]])) == pytest.approx(0.25)


def test_content_is_scikit_learns_components_up_to_sign():
    numbers = np.random.default_rng(0)
    documents = [numbers.normal(size=(n, 9)) for n in (3, 5, 2, 7, 4, 6)]
    expected = PCA(n_components=4).fit_transform(np.stack([rows.mean(axis=0) for rows in documents]))
    assert np.abs(content(documents, dimensions=4)) == pytest.approx(np.abs(expected))


def fit_of(name, predictors, values):
    """The fit as metric -> value; empty where there is none."""
    return {score.metric: score.value for score in regress(name, predictors, values)}


def test_regression_is_ordinary_least_squares():
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(40, 3)) * [1.0, 100.0, 1e-3]
    y = x @ [1.0, 0.01, 0.0] + numbers.normal(size=40)
    fit = fit_of("x", x, y)
    r_squared = LinearRegression().fit(x, y).score(x, y)
    f = r_squared / 3 / ((1 - r_squared) / 36)
    assert fit["r_squared"] == pytest.approx(100 * r_squared) and fit["f"] == pytest.approx(f)
    assert fit["p"] == pytest.approx(1 - stats.f.cdf(f, 3, 36)) and fit["predictors"] == 3
    assert fit["adjusted_r_squared"] == pytest.approx(100 * (1 - (1 - r_squared) * 39 / 36))


def test_dependent_predictors_count_once():
    x = np.random.default_rng(3).normal(size=(20, 2))
    y = x.sum(axis=1) + np.arange(20)
    twice = np.concatenate([x, x[:, :1] * 2, np.ones((20, 1))], axis=1)
    assert fit_of("twice", twice, y)["predictors"] == 2
    assert fit_of("twice", twice, y)["r_squared"] == pytest.approx(fit_of("once", x, y)["r_squared"])


def test_what_cannot_be_tested_has_no_regression():
    x = np.random.default_rng(4).normal(size=(4, 3))
    assert regress("too few", x, np.arange(4.0)) == []
    assert regress("equal values", x[:, :1], np.ones(4)) == []
    assert regress("no predictor varies", np.ones((4, 1)), np.arange(4.0)) == []


def test_spread_explains_what_was_made_of_it():
    numbers = np.random.default_rng(5)
    scale = numbers.random(60)
    images = [np.ones(6) + s * numbers.normal(size=(5, 6)) for s in scale]
    texts = [np.ones(4) + numbers.normal(size=(3, 4)) for _ in scale]
    auc = [50 + 50 * spread(rows) for rows in images]
    scores = analyse_documents(np.array(auc), images, texts)
    fits = {(score.group, score.metric): score.value for score in scores}
    names = ["image spread", "text spread", "spread", "spread + content"]
    assert list(dict.fromkeys(group for group, _ in fits)) == names
    assert fits["image spread", "r_squared"] == pytest.approx(100.0)
    assert fits["text spread", "r_squared"] < 20 and fits["spread + content", "predictors"] == 2 + 6 + 4
    assert fits["spread", "p"] < 0.01 < fits["text spread", "p"]


def test_rank_correlation_is_scipys():
    first, second = np.random.default_rng(6).integers(5, size=(2, 30)).astype(float)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 25.0]) == pytest.approx(1.0)
    assert spearman([1.0, 1.0], [1.0, 2.0]) is None
    with pytest.raises(ValueError, match="same documents"):
        spearman([1.0], [1.0, 2.0])
