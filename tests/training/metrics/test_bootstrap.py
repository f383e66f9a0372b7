import numpy as np
import pytest

from training.metrics.bootstrap import compare, mean_interval


def test_interval_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(0).normal(10, 3, 400)
    found = mean_interval(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    intervals = [mean_interval(rng.exponential(1, 60)) for _ in range(200)]
    covered = np.mean([found.low <= 1 <= found.high for found in intervals])
    assert 0.88 <= covered <= 0.98


def test_repeatable_and_constant() -> None:
    values = np.random.default_rng(2).normal(size=20)
    assert mean_interval(values) == mean_interval(values)
    constant = mean_interval(np.full(5, 2.0))
    assert constant.low == constant.mean == constant.high == 2.0


def test_paired_comparison_sees_what_unpaired_intervals_hide() -> None:
    champion = np.random.default_rng(0).normal(70, 20, 100)
    found = compare(champion + 1 + np.random.default_rng(1).normal(0, 1, 100), champion)
    assert found.difference.low > 0.5
    assert found.probability_at_least == 1.0
    assert mean_interval(champion).high > champion.mean() + 1


def test_comparison_is_antisymmetric() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    forth, back = compare(a, b), compare(b, a)
    assert forth.difference.mean == pytest.approx(-back.difference.mean)
    assert forth.difference.low == pytest.approx(-back.difference.high)
    assert forth.probability_at_least == pytest.approx(1 - back.probability_at_least)
    assert compare(a, a).probability_at_least == 1.0


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="same documents"):
        compare(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="one value a document"):
        mean_interval(np.zeros(0))
