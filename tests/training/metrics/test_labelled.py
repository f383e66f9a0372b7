"""Measures of a corpus from a few labels: against plain formulas, and in simulation."""

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.labelled import simulate
from training.metrics.labelled import Labels, Population, agreement, drawn, measure, strata_of, threshold_for


def population(count: int, *, seed: int = 0) -> Population:
    draws = np.random.default_rng(seed)
    is_linked, scores = draws.random(count) < 0.7, draws.random(count)
    return Population(strata=strata_of(is_linked, scores, 3), is_linked=is_linked, scores=scores)


@pytest.mark.parametrize(
    ("right", "slope"), [(0.6, 1.0), pytest.param(0.6, -0.8, marks=pytest.mark.trial), (0.95, 0.0)]
)
def test_intervals_hold_in_95_of_100_of_five_hundred_corpora(right: float, slope: float) -> None:
    found = simulate(right, slope, 50, corpora=500)
    assert (found.holds >= 0.95).all(), found.holds


def test_where_scores_know_something_fewer_labels_are_needed_than_by_plain_sampling() -> None:
    found = simulate(0.8, 0.8, 200, corpora=100)
    assert (found.widths[:2] < 0.92 * found.plain).all()


def test_labels_of_every_image_give_the_numbers_themselves() -> None:
    every, draws = population(400), np.random.default_rng(1)
    is_right = every.is_linked & (draws.random(400) < every.scores)
    has_text = is_right | (draws.random(400) < 0.4)
    found = measure(every, Labels(rows=np.arange(400), is_right=is_right, has_text=has_text))
    assert found.precision.interval.mean == pytest.approx(is_right.sum() / every.is_linked.sum())
    assert found.recall.interval.mean == pytest.approx(is_right.sum() / has_text.sum())
    assert found.precision.more == found.recall.more == 0
    good, bad = every.scores[is_right], every.scores[every.is_linked & ~is_right]
    assert found.auc.mean == pytest.approx((good[:, None] > bad).mean())


def test_with_one_stratum_and_scores_that_are_all_alike_it_is_about_plain_sampling() -> None:
    count = 100_000
    every = Population(strata=np.zeros(count, np.int64), is_linked=np.ones(count, bool), scores=np.ones(count))
    labels = Labels(rows=np.arange(60), is_right=np.arange(60) < 40, has_text=np.ones(60, bool))
    found = measure(every, labels).precision
    assert found is not None
    expected = binomtest(40, 60).proportion_ci()
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high), abs=0.01)
    assert 170 <= found.more <= 200  # four times as many in all, about


def test_a_larger_sample_has_the_smaller_one_in_it_and_every_stratum_its_share() -> None:
    every = population(1000)
    few, many = (drawn(every.strata, count, np.random.default_rng(3)).tolist() for count in (50, 120))
    assert set(few) < set(many) and len(set(many)) == 120
    assert set(np.bincount(every.strata[few])) <= {12, 13}
    assert sorted(drawn(every.strata, 5000, np.random.default_rng(3))) == list(range(1000))


def test_a_threshold_keeps_less_than_the_precision_in_at_most_5_of_100_cases() -> None:
    wrong = found = 0
    for seed in range(300):
        draws = np.random.default_rng(seed)
        scores = draws.random(2000)
        every = Population(strata=strata_of(scores >= 0, scores, 3), is_linked=scores >= 0, scores=scores)
        is_right = draws.random(2000) < 0.5 + 0.5 * scores
        rows = drawn(every.strata, 200, draws)
        kept = threshold_for(every, Labels(rows=rows, is_right=is_right[rows], has_text=is_right[rows]), 0.75)
        if kept is not None:
            found += 1
            wrong += is_right[scores >= kept.score].mean() < 0.75
    assert found > 100 and wrong <= 15


def test_without_a_right_or_a_wrong_link_there_is_no_auc_and_nothing_is_certain() -> None:
    every = population(500)
    rows = np.flatnonzero(every.is_linked)[:20]
    found = measure(every, Labels(rows=rows, is_right=np.ones(20, bool), has_text=np.ones(20, bool)))
    assert found.auc is None and found.precision is not None
    assert found.precision.interval.mean > 0.9 and found.precision.interval.low < 0.9
    unlinked, no = np.flatnonzero(~every.is_linked)[:5], np.zeros(5, bool)
    none = measure(every, Labels(rows=unlinked, is_right=no, has_text=no))
    assert (none.precision, none.recall) == (None, None)


def test_agreement_is_cohens() -> None:
    first, second = list("aaaaabbbbb"), list("aaaabbbbbb")
    share, kappa = agreement(first, second)
    assert share == pytest.approx(0.9) and kappa == pytest.approx((0.9 - 0.5) / 0.5)
    assert agreement(["a"], ["a"]) == (1, 1)


def _corpus(seed: int, right: float = 0.6) -> tuple[Population, np.ndarray, np.ndarray]:
    """Return a corpus, which of its images have a right link, and with which some sentence goes."""
    draws = np.random.default_rng(seed)
    is_linked, scores = draws.random(2000) < 0.7, draws.beta(5, 2, 2000)
    is_right = is_linked & (draws.random(2000) < right)
    every = Population(strata=strata_of(is_linked, scores, 3), is_linked=is_linked, scores=scores)
    return every, is_right, is_right | (draws.random(2000) < 0.4)


@pytest.mark.parametrize("few", [6, 60])
def test_the_interval_of_precision_holds_where_a_stratum_has_no_label(few: int) -> None:
    """Either nobody can say anything of any unlinked image, or a person has only begun."""
    holds = []
    for seed in range(300):
        every, is_right, has_text = _corpus(seed)
        rows = drawn(every.strata, 60, np.random.default_rng(seed))[:few]
        rows = rows[every.strata[rows] > 0] if few == 60 else rows
        found = measure(every, Labels(rows=rows, is_right=is_right[rows], has_text=has_text[rows]))
        if found.precision is not None:
            truth = is_right.sum() / every.is_linked.sum()
            holds.append(found.precision.interval.low <= truth <= found.precision.interval.high)
        if len(set(every.strata[rows])) < 4:
            assert found.recall is None  # of the images without a link nothing is known
    assert len(holds) > 250 and np.mean(holds) >= 0.95, np.mean(holds)


def test_a_stratum_of_links_without_a_label_has_its_whole_range() -> None:
    every, is_right, has_text = _corpus(0)
    rows = drawn(every.strata, 2000, np.random.default_rng(0))
    rows = rows[every.strata[rows] != 3]  # all but the surest third of the links
    found = measure(every, Labels(rows=rows, is_right=is_right[rows], has_text=has_text[rows]))
    known, linked = is_right[rows].sum(), every.is_linked.sum()
    assert found.precision is not None and found.auc is None
    interval = found.precision.interval
    assert (interval.low, interval.high) == pytest.approx(
        (known / linked, (known + (every.strata == 3).sum()) / linked), abs=0.001
    )


def test_a_threshold_is_not_found_by_labels_of_some_strata_alone() -> None:
    wrong = 0
    for seed in range(200):
        every, is_right, has_text = _corpus(seed)
        rows = drawn(every.strata, 200, np.random.default_rng(seed))
        rows = rows[every.strata[rows] > 0]  # of the images without a link nobody could say anything
        kept = threshold_for(every, Labels(rows=rows, is_right=is_right[rows], has_text=has_text[rows]), 0.7)
        if kept is not None:
            wrong += is_right[every.is_linked & (every.scores >= kept.score)].mean() < 0.7
    assert wrong <= 10  # 5%
