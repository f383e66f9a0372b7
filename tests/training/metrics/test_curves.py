"""Curves of probability against scikit-learn; thresholds of a precision, where links of a document are dependent."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from training.metrics import curves
from training.metrics.curves import LEVELS, PrecisionPoint, fit_curve, fit_isotonic, fit_sigmoid, precision_points


def results(count, seed=0):
    """Results that are right with probability sigmoid(6 s - 2)."""
    numbers = np.random.default_rng(seed)
    similarities = numbers.random(count)
    return similarities, numbers.random(count) < expit(6 * similarities - 2)


def test_sigmoid_is_a_logistic_regression_on_platts_targets():
    similarities, are_right = results(500)
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
    probabilities = fit_curve(np.array([0.1, 0.2, 0.8, 0.9]), are_right).probability(np.array([-1.0, 0.5, 1.0]))
    assert np.isfinite(probabilities).all() and (probabilities > 0).all() and (probabilities < 1).all()


def test_isotonic_is_scikit_learns():
    similarities, are_right = results(1500)
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
    curve = fit_curve(*results(count))
    queries = np.linspace(0.05, 0.95, 10)
    assert bool(curve.similarities) == (count > 999)
    assert curve.probability(queries) == pytest.approx(expit(6 * queries - 2), abs=0.05)


LINKS = 5  # of a document
SIMILARITIES = np.linspace(0, 1, 4001)


def drawn(seed, documents, share, correlation):
    """Links that are true with a probability of `share(similarity)`, correlated within their document."""
    numbers = np.random.default_rng(seed)
    similarities = numbers.random((documents, LINKS))
    own, common = numbers.normal(size=(documents, LINKS)), numbers.normal(size=(documents, 1))
    draws = norm.cdf(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
    return similarities.ravel(), (draws < share(similarities)).ravel(), np.repeat(np.arange(documents), LINKS)


def rising(similarities):
    return 0.5 + 0.49 * similarities


def flat(similarities):
    return np.full_like(similarities, 0.79)


@pytest.mark.parametrize("documents", [30, pytest.param(150, marks=pytest.mark.trial)])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("share", [rising, flat])
def test_a_threshold_hardly_ever_keeps_less_than_it_promises(documents, correlation, share):
    """At a rate of 5% more than 5 of 40 draws would fail once in eighty times; none of them does."""
    missed = 0
    for seed in range(40):
        points = precision_points(*drawn(seed, documents, share, correlation), documents)
        missed += any(share(SIMILARITIES[p.similarity <= SIMILARITIES]).mean() < p.precision for p in points)
    assert missed <= 5


def test_links_of_a_document_that_are_all_alike_are_one_observation():
    """By a bound that takes 800 links as independent, 12 of these 40 draws would be proven to reach 0.8."""
    missed = 0
    for seed in range(40):
        true = np.repeat(np.random.default_rng(seed).random(40) < 0.78, 20)
        points = precision_points(np.full(800, 0.5), true, np.repeat(np.arange(40), 20), 40)
        missed += any(point.precision >= 0.8 for point in points)
    assert missed <= 4


RARE = {"ten": 10, "a hundred": 100, "five hundred": 500}


def heavy_tailed(seed, documents, size):
    """Documents of five links, 99% of them true, and one in fifty of many links, all false."""
    numbers = np.random.default_rng(seed)
    is_large = numbers.random(documents) < 0.02
    sizes = np.where(is_large, size, LINKS)
    true = ~np.repeat(is_large, sizes) & (numbers.random(sizes.sum()) < 0.99)
    return numbers.random(sizes.sum()), true, np.repeat(np.arange(documents), sizes)


@pytest.mark.parametrize(
    ("documents", "size"),
    [
        pytest.param(documents, size, id=f"{documents}-{name}", marks=[] if documents < size else pytest.mark.trial)
        for documents in (50, 200)
        for name, size in RARE.items()
    ],
)
def test_rare_documents_of_many_false_links_are_reckoned_with(documents, size):
    """By a bound that knows no more than the largest document of the sample, 30-53% of such draws are wrong.

    The truth of each threshold is that of 20,000 further documents.
    """
    similarities, are_true, owners = heavy_tailed(99, 20_000, size)
    order = np.argsort(-similarities)
    missed = 0
    for seed in range(40):
        points = precision_points(*heavy_tailed(seed, documents, size), documents)
        for point in points:
            kept = order[: np.searchsorted(-similarities[order], -point.similarity, side="right")]
            counts, true = (np.bincount(owners[kept], weights=each) for each in (None, are_true[kept]))
            if (true[counts > 0] / counts[counts > 0]).mean() < point.precision:
                missed += 1
                break
    assert missed <= 5


def test_each_document_counts_once():
    """One document of a thousand true links is no proof, and one of a thousand false ones hardly matters."""
    many = np.concatenate([np.arange(40), np.full(1000, 40)])
    similarities = np.full(1040, 0.5)
    assert precision_points(similarities, many == 40, many, 41) == ()
    proven = precision_points(similarities, many < 40, many, 41)
    assert proven and proven[-1].precision < 40 / 41


def test_thresholds_are_found_where_there_are_some():
    similarities, are_true, documents = drawn(1, 300, rising, 0.3)
    points = precision_points(similarities, are_true, documents, 300)
    assert [point.precision for point in points] == list(LEVELS[: len(points)])
    assert points[-1].precision >= 0.85
    kept = [point.links for point in points]
    assert kept == sorted(kept, reverse=True)
    for point in points:
        assert point.links == int((similarities >= point.similarity).sum()) >= 20


def test_the_bound_of_one_threshold_is_the_gates(monkeypatch):
    """One similarity, so one threshold: proven where an upper bound of mean false links is below the share of links."""
    monkeypatch.setattr(curves, "LEVELS", (0.6,))
    numbers = np.random.default_rng(3)
    for false in (16, 22, 28, 34):
        are_true = numbers.permutation(np.arange(100) >= false)
        points = precision_points(np.full(100, 0.4), are_true, np.arange(100), 100)
        weights = numbers.dirichlet(np.ones(101), size=20_000)
        bound = np.quantile(weights[:, 1:] @ (~are_true - 0.4) + 0.6 * weights[:, 0], 0.95)
        assert bool(points) == (bound < 0), (false, bound)


def test_few_links_are_no_threshold():
    assert precision_points(np.arange(19) / 19, np.ones(19, bool), np.arange(19), 19) == ()
    assert precision_points(np.zeros(0), np.zeros(0, bool), np.zeros(0, np.int64), 0) == ()
    found = precision_points(np.arange(40) / 40, np.ones(40, bool), np.arange(40), 40)
    assert found[0] == PrecisionPoint(0.0, 0.5, 40)
    assert min(point.links for point in found) >= 20


def test_a_document_without_links_counts():
    """Many documents whose links are kept by no threshold make a share no better known, and no worse."""
    similarities, are_true, documents = drawn(2, 60, rising, 0.0)
    alone = precision_points(similarities, are_true, documents, 60)
    among = precision_points(similarities, are_true, documents, 6000)
    assert abs(len(alone) - len(among)) <= 2
