"""Spread by hand; regressions against scikit-learn and scipy; rank correlation against scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from training.metrics.spread import analyse_documents, content, regress, sampling_bias, spearman, spread


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


def test_sampling_bias_by_hand():
    images = [np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), np.array([[6.0, 8.0]])]
    links = [np.array([[0, 0], [0, 2], [1, 1]]), np.array([[0, 0]])]
    near, far, test, p = sampling_bias(images, links)
    # sentence 0: images 0 and 2 against 1; sentence 1: image 1 against 0 and 2; document 2 has no negative
    inside = [5.0, np.hypot(3, 3), 5.0, np.hypot(3, 3)]
    outside = [10.0, np.hypot(6, 7), 5.0, 5.0]
    assert near.value == pytest.approx(np.mean(inside)) and far.value == pytest.approx(np.mean(outside))
    grid = np.array(sorted({*inside, *outside}))
    shares = [np.array([np.mean(np.array(side) <= point) for point in grid]) for side in (inside, outside)]
    assert test.value == pytest.approx(np.abs(shares[0] - shares[1]).max()) and test.n == 4
    assert p.value == pytest.approx(stats.ks_2samp(inside, outside).pvalue)
    assert sampling_bias(images[:1], links[:1]) == [] and sampling_bias(images, [None, links[1]]) == []


def test_negatives_of_other_documents_are_never_the_documents_own():
    numbers = np.random.default_rng(0)
    own = [np.full((m, 2), 10.0 * place) for place, m in enumerate((3, 4, 2, 5))]
    links = [np.array([[0, 0]])] * 4
    near, far, test, _ = sampling_bias(own, links, seed=int(numbers.integers(9)))
    assert near.value == 0.0 and far.value > 10 and test.value == 1.0


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


def test_with_one_predictor_the_f_test_is_scipys():
    numbers = np.random.default_rng(2)
    x = numbers.normal(size=30)
    y = x + numbers.normal(size=30)
    assert fit_of("x", x[:, None], y)["p"] == pytest.approx(stats.linregress(x, y).pvalue)


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
    spreads, scores = analyse_documents(np.array(auc), images, texts)
    assert spreads[:, 0] == pytest.approx([spread(rows) for rows in images]) and spreads.shape == (60, 2)
    fits = {(score.group, score.metric): score.value for score in scores}
    names = ["image spread", "text spread", "spread", "spread + content"]
    assert list(dict.fromkeys(group for group, _ in fits)) == names
    assert fits["image spread", "r_squared"] == pytest.approx(100.0)
    assert fits["text spread", "r_squared"] < 20 and fits["spread + content", "predictors"] == 2 + 6 + 4
    assert fits["spread", "p"] < 0.01 < fits["text spread", "p"]


def test_rank_correlation_is_scipys():
    numbers = np.random.default_rng(6)
    first, second = numbers.integers(5, size=(2, 30)).astype(float)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 25.0]) == pytest.approx(1.0)
    assert spearman([1.0, 1.0], [1.0, 2.0]) is None
    with pytest.raises(ValueError, match="same documents"):
        spearman([1.0], [1.0, 2.0])
