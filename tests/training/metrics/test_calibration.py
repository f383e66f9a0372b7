"""Calibrations of links against hand-worked examples and on other links."""

import dataclasses
from hashlib import sha256

import numpy as np
import pytest
from scipy.special import expit

from schemas.messages import IntegrityError, UsageError
from training.metrics.calibration import (
    Observations,
    calibration_scores,
    fit_calibration,
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
    features = np.column_stack([similarities, np.zeros((count, 2))])
    return Observations(features, are_true, documents, np.full((int(documents[-1]) + 1, 2), 8))


def test_what_is_observed_are_the_predicted_links_of_known_documents():
    matrix = np.array([[0.9, 0.8], [0.7, -0.1]])  # the best matching: (0, 1) and (1, 0)
    everything = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # says nothing: no prediction could be wrong
    seen = observe([matrix] * 4, [np.array([[0, 1]]), None, np.zeros((0, 2), np.int64), everything])
    assert seen.shapes.tolist() == [[2, 2], [2, 2]] and seen.documents.tolist() == [0, 0, 2, 2]
    assert seen.similarities.tolist() == [0.8, 0.7, 0.8, 0.7]
    assert seen.are_true.tolist() == [True, False, False, False]


def test_a_threshold_keeps_the_wanted_precision_on_other_links():
    calibration = fit_calibration(drawn(seed=1), dataset="d@v", split="val")
    judged = {(score.metric, score.group): score for score in calibration_scores(calibration, drawn(seed=2))}
    for wanted in (0.8, 0.9, 0.95):
        group = f"precision {wanted:.0%}"
        assert calibration.threshold(wanted) == judged["threshold", group].value
        assert judged["precision", group].high > 100 * wanted and 0 < judged["kept", group].value < 100
    assert judged["expected_calibration_error", ""].value < 5 and 0.1 < judged["brier", ""].value < 0.2
    assert sum(score.n for (metric, _), score in judged.items() if metric == "true_share") == 4000


def test_a_precision_that_nothing_reaches_is_said():
    seen = dataclasses.replace(drawn(40), are_true=np.arange(40) % 2 == 0)
    calibration = fit_calibration(seen, dataset="diy@v1", split="val")
    notes = [score.note for score in calibration_scores(calibration, seen) if score.value is None]
    assert notes == ["none is proven by 5 validation documents"]
    with pytest.raises(UsageError, match=r"by 40 links in 5 documents of diy@v1, split val; the highest is 0$"):
        calibration.threshold(0.9)
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        calibration.threshold(90)


def test_as_many_documents_as_are_said_to_do_prove_a_precision():
    """By other documents of the same world; some draws need more, so the estimate is held for most of them."""
    calibration = fit_calibration(drawn(240), dataset="d@v", split="val")
    with pytest.raises(UsageError, match=r"about (60|120|240|480) documents with known links would do"):
        calibration.threshold(0.9)
    needed = min(count for precision, count in calibration.proving if precision >= 0.9)
    proven = [fit_calibration(drawn(8 * needed, seed), dataset="d@v", split="val").points for seed in range(1, 8)]
    assert sum(points[-1].precision >= 0.9 for points in proven if points) > len(proven) / 2


def test_a_calibration_survives_its_file(tmp_path):
    calibration = fit_calibration(drawn(240), dataset="d@v", split="val")
    assert calibration.points and calibration.proving
    path = tmp_path / "calibration.json"
    path.write_text(calibration.to_json())
    again = read_calibration(path)
    assert again == calibration and again.digest == calibration.digest == sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"points": [{}]}'])
def test_what_is_no_calibration_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match=r"expected a calibration in .*x\.json"):
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
    seen = Observations(features, features[:, 2] > 0.5, np.arange(400) // 4, np.full((100, 2), 4))
    found = fit_calibration(seen, dataset="d@v", split="val")
    assert np.abs(found.of_features(features) - seen.are_true).mean() < 0.15


def scenes(draws, count, size=5, spread=0.12):
    """Documents of as many sentences as pictures, all linked: cosines about 0.4 of true pairs, about 0.2 of others."""
    matrices, links, places = [], [], np.arange(size)
    for _ in range(count):
        matrix, partners = draws.normal(0.2, spread, (size, size)), draws.permutation(size)
        matrix[places, partners] = draws.normal(0.4, spread, size)
        matrices.append(matrix)
        links.append(np.stack([places, partners], axis=1))
    return observe(matrices, links)


def test_probabilities_are_true_in_every_tenth_where_a_sigmoid_bends():
    """By the sigmoid alone links that were shown with 16 and 25% were true in 37%."""
    fitted = fit_calibration(scenes(np.random.default_rng(0), 400), dataset="d@v", split="val")
    fresh = scenes(np.random.default_rng(100), 800)
    shown = fitted.of_features(fresh.features)
    assert max(abs(each.expected - each.true) for each in reliability(shown, fresh.are_true)) < 0.09
    for least in np.arange(0, 1, 0.1):
        part = (shown >= least) & (shown < least + 0.1)
        if part.sum() >= 200:
            assert abs(shown[part].mean() - fresh.are_true[part].mean()) < 0.1
    assert shown.min() > 0 and shown.max() < 1  # nothing is certain


def test_a_probability_holds_for_documents_like_those_it_was_fitted_on():
    draws = np.random.default_rng(0)
    shapes = np.concatenate([draws.integers(4, 9, (198, 2)), [[1, 1], [90, 90]]])
    seen = observe([draws.normal(size=shape) for shape in shapes], [np.zeros((0, 2), np.int64)] * len(shapes))
    fitted = fit_calibration(seen, dataset="diy@v1", split="val")
    assert (fitted.sentences, fitted.images) == ((4, 8), (4, 8))  # but for one of a hundred at either end
    for dataset, shape, reason in [
        ("diy@v1", (4, 8), ""),
        ("diy@v2", None, ""),  # another version of the same documents
        ("diy", (9, 8), "4 to 8 sentences"),
        ("diy", (4, 3), "4 to 8 images"),
        ("rqa@v1", (4, 8), "diy@v1"),
        ("", None, "diy@v1"),  # a user's own
    ]:
        found = fitted.outside(dataset, shape)
        assert reason in found and bool(found) == bool(reason)
