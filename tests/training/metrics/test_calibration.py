"""Calibrations against scikit-learn and hand-worked examples."""

import dataclasses

import numpy as np
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from schemas.errors import IntegrityError, UsageError
from training.metrics.calibration import (
    Method,
    Observations,
    calibration_scores,
    fit_calibration,
    fit_isotonic,
    fit_sigmoid,
    link_features,
    observe,
    read_calibration,
    reliability,
)


def drawn(count=4000, seed=0):
    """Links whose probability is sigmoid(6 s - 2)."""
    numbers = np.random.default_rng(seed)
    similarities = numbers.random(count)
    are_true = numbers.random(count) < expit(6 * similarities - 2)
    documents = np.arange(count) // 8
    return Observations(similarities[:, None], are_true, documents, document_count=int(documents[-1]) + 1)


def test_what_is_observed_are_the_predicted_links_of_known_documents():
    matrix = np.array([[0.9, 0.8], [0.7, -0.1]])  # the best matching: (0, 1) and (1, 0)
    everything = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # says nothing: no prediction could be wrong
    seen = observe([matrix] * 4, [np.array([[0, 1]]), None, np.zeros((0, 2), np.int64), everything])
    assert seen.document_count == 2 and seen.documents.tolist() == [0, 0, 2, 2]
    assert seen.similarities.tolist() == [0.8, 0.7, 0.8, 0.7]
    assert seen.are_true.tolist() == [True, False, False, False]


def test_sigmoid_is_a_logistic_regression_on_platts_targets():
    seen = drawn(500)
    true, false = seen.are_true.sum(), (~seen.are_true).sum()
    targets = np.where(seen.are_true, (true + 1) / (true + 2), 1 / (false + 2))
    x = np.tile(seen.similarities, 2)[:, None]
    y = np.repeat([1, 0], 500)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x, y, np.concatenate([targets, 1 - targets]))
    slope, intercept = fit_sigmoid(seen.features, seen.are_true)
    assert slope == pytest.approx(peer.coef_[0, 0], rel=1e-4)
    assert intercept == pytest.approx(peer.intercept_[0], rel=1e-4)


@pytest.mark.parametrize("are_true", [np.array([False, False, True, True]), np.ones(4, bool), np.zeros(4, bool)])
def test_a_sigmoid_of_few_links_is_finite_and_between_0_and_1(are_true):
    seen = Observations(np.array([[0.1], [0.2], [0.8], [0.9]]), are_true, np.zeros(4, int), document_count=1)
    found = fit_calibration(seen, dataset="d@v", split="val").probability(np.array([-1.0, 0.5, 1.0]))
    assert np.isfinite(found).all() and (found > 0).all() and (found < 1).all()


def test_isotonic_is_scikit_learns():
    seen = drawn(1500)
    similarities = np.round(seen.similarities, 2)  # with ties
    peer = IsotonicRegression(out_of_bounds="clip").fit(similarities, seen.are_true)
    fitted = dataclasses.replace(seen, features=similarities[:, None])
    found = fit_calibration(fitted, dataset="d@v", split="val")
    assert found.method is Method.ISOTONIC
    places = np.linspace(-0.2, 1.2, 200)
    assert found.probability(places) == pytest.approx(peer.predict(places), abs=1e-9)
    assert len(found.similarities) < len(np.unique(similarities))


def test_isotonic_of_one_similarity_is_its_share():
    assert fit_isotonic(np.full(4, 0.3), np.array([True, False, True, True])) == ((0.3,), (0.75,))


def test_both_methods_find_the_probability_the_links_were_drawn_with():
    for method in Method:
        found = fit_calibration(drawn(20_000), dataset="d@v", split="val", method=method)
        places = np.linspace(0.05, 0.95, 10)
        assert found.probability(places) == pytest.approx(expit(6 * places - 2), abs=0.05)


def test_a_threshold_keeps_the_wanted_precision_on_other_links():
    calibration = fit_calibration(drawn(seed=1), dataset="d@v", split="val")
    judged = {(score.metric, score.group): score for score in calibration_scores(calibration, drawn(seed=2))}
    for wanted in (0.8, 0.9, 0.95):
        group = f"precision {wanted:.0%}"
        assert calibration.threshold(wanted) == judged["threshold", group].value
        assert judged["precision", group].high > 100 * wanted and 0 < judged["kept", group].value < 100
    assert judged["expected_calibration_error", ""].value < 5 and 0.1 < judged["brier", ""].value < 0.2
    assert sum(score.n for (metric, _), score in judged.items() if metric == "true_share") == 4000


def test_a_threshold_that_is_not_reached_is_said():
    seen = dataclasses.replace(drawn(40), are_true=np.arange(40) % 2 == 0)
    scores = list(calibration_scores(fit_calibration(seen, dataset="d@v", split="val"), seen))
    assert [score.note for score in scores if score.value is None] == ["none is proven by 5 validation documents"]


def test_reliability_of_a_worked_example():
    rows = reliability(np.array([0.2, 0.2, 0.2, 0.9]), np.array([True, False, False, True]), bins=2)
    assert [(row.expected, row.links) for row in rows] == [(pytest.approx(0.2), 3), (0.9, 1)]
    assert [row.true for row in rows] == [pytest.approx(1 / 3), 1.0]


def test_a_precision_that_nothing_reaches_is_said():
    seen = dataclasses.replace(drawn(40), are_true=np.arange(40) % 2 == 0)
    calibration = fit_calibration(seen, dataset="diy@v1", split="val")
    with pytest.raises(UsageError, match=r"by 40 links in 5 documents of diy@v1, split val; the highest is 0$"):
        calibration.threshold(0.9)
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        calibration.threshold(90)


@pytest.mark.parametrize("method", Method)
def test_a_calibration_survives_its_file(tmp_path, method):
    calibration = fit_calibration(drawn(100), dataset="d@v", split="val", method=method)
    path = tmp_path / "calibration.json"
    path.write_text(calibration.to_json())
    assert read_calibration(path) == calibration


def test_thresholds_of_before_are_not_taken(tmp_path):
    """They were bounds of all links together, which no sample gives; probabilities stay."""
    calibration = fit_calibration(drawn(seed=1), dataset="d@v", split="val")
    path = tmp_path / "calibration.json"
    path.write_text(calibration.to_json().replace('"format": 3', '"format": 2'))
    found = read_calibration(path)
    assert calibration.points and not found.points
    assert found == dataclasses.replace(calibration, format=2, points=())
    with pytest.raises(UsageError, match="multilink evaluate"):
        found.threshold(0.8)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "points": [{}]}'])
def test_what_is_no_calibration_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match=r"expected a calibration of format 3 in .*x\.json"):
        read_calibration(path)


def test_features_of_a_worked_example():
    matrix = np.array([[0.9, 0.2], [0.1, 0.4], [0.3, 0.0]])
    kernel = np.hstack([np.exp(10 * matrix), np.ones((3, 1))])  # a partner for the sentence that is left over
    for _ in range(15):
        kernel /= kernel.sum(axis=1, keepdims=True)
        kernel /= kernel.sum(axis=0)
    found = link_features(matrix, np.array([0, 1]), np.array([0, 1]))
    assert found[:, 0].tolist() == [0.9, 0.4]
    assert found[:, 1] == pytest.approx(np.log([3 * kernel[0, 0], 3 * kernel[1, 1]]))
    assert found[:, 2] == pytest.approx([0.6, 0.2])  # to 0.3 in its column, to 0.2 in its column
    assert link_features(np.array([[0.5]]), np.array([0]), np.array([0])).tolist() == [[0.5, pytest.approx(0), 0.0]]


def test_a_margin_tells_links_apart_that_are_equally_similar():
    """Every link has a similarity of 0.5; it is true where nothing else comes near."""
    numbers = np.random.default_rng(0)
    features = np.column_stack([np.full(400, 0.5), numbers.normal(size=400), numbers.random(400)])
    seen = Observations(features, features[:, 2] > 0.5, np.arange(400) // 4, document_count=100)
    found = fit_calibration(seen, dataset="d@v", split="val")
    assert np.abs(found.of_features(features) - seen.are_true).mean() < 0.15
    assert found.probability(np.array([0.5]))[0] == pytest.approx(seen.are_true.mean(), abs=0.01)


def test_a_calibration_of_before_goes_by_similarity(tmp_path):
    calibration = dataclasses.replace(fit_calibration(drawn(100), dataset="d@v", split="val"), features=())
    matrix = np.array([[0.9, 0.2], [0.1, 0.4]])
    found = calibration.of_links(matrix, np.array([0, 1]), np.array([0, 1]))
    assert found.tolist() == calibration.probability(np.array([0.9, 0.4])).tolist()
