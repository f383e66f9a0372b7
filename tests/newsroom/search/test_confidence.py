"""What the probability of a search promises, on texts that it was not fitted to, in archives of several sizes."""

import numpy as np
import pytest

from benchmarks.search import RIGHT, SPREAD, WRONG, searched, simulate


@pytest.mark.parametrize("size", [100, 1_000, 10_000, 100_000])
def test_results_of_other_texts_are_right_as_often_as_is_shown(size: int) -> None:
    found = simulate(size, archives=6)
    assert found["shown"] == pytest.approx(found["found"], abs=0.03)
    assert found["off"] < 0.06  # of which 0.03 is the chance of groups of a hundred texts
    if size >= 1_000:
        assert found["link"] > 0.95 and found["first"] < 0.5  # what was shown before, and what is true


def test_the_simulated_search_finds_what_a_search_of_every_picture_finds() -> None:
    draws, size = np.random.default_rng(0), 300
    every = draws.normal(WRONG, SPREAD, (4000, size))
    every[:, 0] = draws.normal(RIGHT, SPREAD, 4000)
    order = np.argsort(-every, axis=1)[:, :10]
    quick = searched(size, 4000, draws)
    cosines = np.take_along_axis(every, order, axis=1)
    assert quick.cosines.mean(axis=0) == pytest.approx(cosines.mean(axis=0), abs=0.008)
    assert quick.are_found.mean() == pytest.approx((order == 0).any(axis=1).mean(), abs=0.03)
    assert quick.are_right[:, 0].mean() == pytest.approx((order[:, 0] == 0).mean(), abs=0.04)
