"""Team-draft interleaving: Radlinski 2008's rules, no bias, and results by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.retrieval.interleaving import preference, team_draft

RANKINGS = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(RANKINGS, RANKINGS, st.integers(0, 25), st.text())
def test_each_gives_its_best_that_is_not_there_in_rounds(
    first: list[int], second: list[int], top: int, seed: str
) -> None:
    found = team_draft(first, second, top=top, seed=seed)
    assert found == team_draft(first, second, top=top, seed=seed)
    rows = [each.row for each in found]
    assert len(set(rows)) == len(rows) <= top
    for number, each in enumerate(found):
        own = second if each.is_second else first
        assert each.row == next(row for row in own if row not in rows[:number])  # its best that is left
        given_before = [other.is_second for other in found[:number]]
        assert abs(sum(given_before) * 2 - number) <= 1  # nobody is ahead by more than one
        if number % 2:  # the round's second turn is the other's
            assert each.is_second != given_before[-1]
    if len(found) < top:  # the ranking whose turn it was had no more
        assert set(first) <= set(rows) or set(second) <= set(rows)


def test_equal_rankings_are_shown_as_they_are_and_share_the_credit_evenly() -> None:
    ranking = list(range(10))
    drafted = [team_draft(ranking, ranking, top=10, seed=str(number)) for number in range(400)]
    assert all([each.row for each in found] == ranking for found in drafted)
    share = np.mean([[each.is_second for each in found] for found in drafted], axis=0)
    assert (abs(share - 0.5) < 4 * 0.5 / 400**0.5).all()  # at every rank: four standard errors


def test_a_better_ranking_is_found_out_by_readers_who_do_not_know_whose_a_picture_is() -> None:
    """A reader takes the first picture that fits; fitting ones are higher in the second ranking."""
    numbers, credits_of = np.random.default_rng(0), []
    for article in range(60):
        fitting = set(numbers.choice(100, 10, replace=False).tolist())
        good = sorted(range(100), key=lambda row: (row not in fitting, numbers.random()))
        poor = numbers.permutation(100).tolist()
        chosen = next(each for each in team_draft(poor, good, top=20, seed=str(article)) if each.row in fitting)
        credits_of.append((int(not chosen.is_second), int(chosen.is_second)))
    found = preference(credits_of)
    assert found.articles == 60 and found.is_second_better and found.p_value < 1e-3


def test_a_preference_by_hand() -> None:
    """Eight of ten: Wilson's interval by its formula; the sign test's probability by counting."""
    found = preference([(0, 1)] * 7 + [(1, 3)] + [(2, 1), (1, 0)] + [(1, 1)] * 5)
    assert (found.first, found.second, found.ties, found.articles) == (2, 8, 5, 15)
    z, n, p = 1.959963984540054, 10, 0.8
    middle, half = (p + z * z / (2 * n)), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    assert found.share == p
    assert found.low == pytest.approx((middle - half) / (1 + z * z / n))
    assert found.high == pytest.approx((middle + half) / (1 + z * z / n))
    assert found.p_value == pytest.approx(2 * (1 + 10 + 45) / 2**10)
    assert found.is_second_better is None
    assert preference([(0, 2)] * 12).is_second_better is True
    assert preference([(1, 0)] * 12).is_second_better is False


def test_without_a_winner_nothing_is_said() -> None:
    for credits_of in ([], [(1, 1)] * 4):
        found = preference(credits_of)
        assert (found.share, found.low, found.high, found.p_value) == (None, 0.0, 1.0, 1.0)
        assert found.is_second_better is None and found.articles == len(credits_of)
