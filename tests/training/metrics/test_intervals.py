"""Intervals of `evaluate` and of reports hold for few documents, near the ceiling, and where documents share items."""

from collections.abc import Callable

import numpy as np
import pytest

from training.metrics.intervals import mean_interval

Draw = Callable[[np.random.Generator, int], np.ndarray]
WORLDS: dict[str, Draw] = {
    "AUC 100 but on 5% of the documents": lambda draws, n: np.where(draws.random(n) < 0.05, 50 * draws.random(n), 100),
    "precision at 1 of 90%": lambda draws, n: 100.0 * (draws.random(n) < 0.9),
    "recall at 1 of 3%": lambda draws, n: 100.0 * (draws.random(n) < 0.03),
    "usual AUC": lambda draws, n: 100 * draws.beta(6, 1.2, n),
}


@pytest.mark.parametrize(
    ("world", "documents"),
    [
        pytest.param(world, documents, marks=[] if documents == (5, 20)[number % 2] else pytest.mark.trial)
        for number, world in enumerate(WORLDS)
        for documents in (5, 20, 100)
    ],
)
def test_an_interval_of_95_percent_holds_the_mean_in_95_of_100_samples(world: str, documents: int) -> None:
    draws = np.random.default_rng(documents)
    true = WORLDS[world](draws, 400_000).mean()
    found = [mean_interval(WORLDS[world](draws, documents)) for _ in range(600)]
    assert np.mean([each.low <= true <= each.high for each in found]) >= 0.95 - 3 * (0.05 * 0.95 / 600) ** 0.5


def test_values_of_one_unit_are_one_observation() -> None:
    draws, units = np.random.default_rng(3), np.repeat(np.arange(20), 10)
    rows = [np.repeat(100.0 * (draws.random(20) < 0.8), 10) for _ in range(100)]
    assert np.mean([each.low <= 80 <= each.high for each in (mean_interval(row, units) for row in rows)]) >= 0.92
    assert np.mean([each.low <= 80 <= each.high for each in (mean_interval(row) for row in rows)]) < 0.7
