"""Chains of retrainings: the gate keeps what the champion can, and still lets better candidates through."""

import pytest

from benchmarks.gate import gate, power, simulate_chains, zero

CHAINS = 1000


@pytest.mark.parametrize("are_fresh", [False, True])
@pytest.mark.parametrize("documents", [20, 200])
def test_the_champion_falls_by_more_than_the_margin_in_at_most_one_chain_of_twenty(
    documents: int, are_fresh: bool
) -> None:
    found = simulate_chains(gate, documents, chains=CHAINS, are_fresh=are_fresh)
    assert found.fell <= 0.05
    assert found.champion > 80


def test_a_candidate_two_points_better_passes_at_200_documents_in_four_of_five_cases() -> None:
    assert power(gate, 200, 2, candidates=2000) >= 0.8
    assert power(gate, 200, 2, candidates=2000, attempt=5) >= 0.8  # the fifth that a champion meets, too
    assert power(gate, 20, -3, candidates=2000) <= 0.025


def test_without_a_margin_a_chain_falls_without_end() -> None:
    """The simulation can fail: with the rule of before it does."""
    assert simulate_chains(zero, 20, chains=50, meets_best=False).champion < 75
    assert power(zero, 20, -3, candidates=500) > 0.7
