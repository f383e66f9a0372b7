"""Team-draft interleaving: Radlinski 2008's rules, no bias, and results by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.preference import is_verdict, verdicts_by_place, verdicts_in
from newsroom.decisions.comparison import team_draft
from training.metrics.preference import MIXTURE, Preference

RANKINGS = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(RANKINGS, RANKINGS, st.integers(0, 25), st.text())
def test_each_gives_its_best_that_is_not_there_in_rounds(
    first: list[int], second: list[int], top: int, seed: str
) -> None:
    found = team_draft(first, second, top=top, seed=seed)
    assert found == team_draft(first, second, top=top, seed=seed)
    rows = [*found]
    assert len(set(rows)) == len(rows) <= top
    for number, (row, is_second) in enumerate(found.items()):
        own = second if is_second else first
        assert row == next(each for each in own if each not in rows[:number])  # its best that is left
        given_before = [*found.values()][:number]
        assert abs(sum(given_before) * 2 - number) <= 1  # nobody is ahead by more than one
        if number % 2:  # the round's second turn is the other's
            assert is_second != given_before[-1]
    if len(found) < top:  # the ranking whose turn it was had no more
        assert set(first) <= set(rows) or set(second) <= set(rows)


def test_equal_rankings_are_shown_as_they_are_and_share_the_credit_evenly() -> None:
    ranking = list(range(10))
    drafted = [team_draft(ranking, ranking, top=10, seed=str(number)) for number in range(400)]
    assert all([*found] == ranking for found in drafted)
    share = np.mean([[*found.values()] for found in drafted], axis=0)
    assert (abs(share - 0.5) < 4 * 0.5 / 400**0.5).all()  # at every rank: four standard errors


def test_a_better_ranking_is_found_out_by_readers_who_do_not_know_whose_a_picture_is() -> None:
    """A reader takes the first picture that fits; fitting ones are higher in the second ranking."""
    numbers, won = np.random.default_rng(0), [0, 0]
    for article in range(60):
        fitting = set(numbers.choice(100, 10, replace=False).tolist())
        good = sorted(range(100), key=lambda row: (row not in fitting, numbers.random()))
        drafted = team_draft(numbers.permutation(100).tolist(), good, top=20, seed=str(article))
        won[next(is_second for row, is_second in drafted.items() if row in fitting)] += 1
    found = Preference(first=won[0], second=won[1])
    assert found.articles == 60 and found.is_second_better and found.evidence > 1000


def test_a_preference_by_hand() -> None:
    """Eight of ten: the mixture of shares by adding up a grid of them, the interval by trying every share."""
    found = Preference(first=2, second=8, ties=5, none_fits=1)
    assert (found.articles, found.share, found.is_second_better) == (16, 0.8, None)
    shares = (np.arange(200_000) + 0.5) / 200_000
    weights = shares ** (MIXTURE - 1) * (1 - shares) ** (MIXTURE - 1)
    likelihood = float((weights / weights.sum() * shares**8 * (1 - shares) ** 2).sum())
    assert found.evidence == pytest.approx(likelihood / 0.5**10, rel=1e-6)
    kept = shares[likelihood / (shares**8 * (1 - shares) ** 2) < 20]
    assert found.interval == pytest.approx((kept.min(), kept.max()), abs=1e-5)
    assert Preference(first=0, second=4).is_second_better is None  # four of four may be chance
    assert Preference(first=0, second=12).is_second_better is True
    assert Preference(first=12, second=0).is_second_better is False
    assert Preference(first=0, second=12).interval[1] == 1 and Preference(first=12, second=0).interval[0] == 0


def test_without_a_winner_nothing_is_said() -> None:
    for found in (Preference(first=0, second=0), Preference(first=0, second=0, ties=4)):
        assert (found.share, found.interval, found.evidence) == (None, (0.0, 1.0), 1.0)
        assert found.is_second_better is None


def test_looking_after_every_article_gives_a_false_verdict_in_at_most_one_run_of_twenty() -> None:
    verdicts = verdicts_in(0.5, runs=10_000)
    assert verdicts.is_given.mean() <= 0.05
    assert 0.4 < verdicts.is_second[verdicts.is_given].mean() < 0.6


def test_readers_who_always_take_the_first_picture_prefer_no_model() -> None:
    """However often it is looked at: a coin decides whose picture is first."""
    assert verdicts_by_place(runs=500) <= 0.05


def test_a_preference_of_two_in_three_is_found_within_300_articles() -> None:
    verdicts = verdicts_in(0.65, runs=1000)
    assert verdicts.is_given.mean() >= 0.95
    assert verdicts.is_second[verdicts.is_given].mean() >= 0.99


def test_the_simulation_looks_with_the_rule_itself() -> None:
    for first, second in [(0, 4), (3, 9), (20, 38), (60, 40), (5, 0), (0, 8), (0, 9)]:
        own = Preference(first=first, second=second)
        assert (is_verdict(np.array(first), np.array(second)) == (own.is_second_better is not None)).all()
