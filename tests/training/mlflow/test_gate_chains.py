"""What the gate lets through, in simulation: a small part of `benchmarks/gate.py`, and more of it among the trials."""

import pytest

from benchmarks.gate import KINDS, MARGINS, STEPS, error_of, fallen, gate, passing, student, unseen

RUNS = 200
MOST = error_of() + 3 * (error_of() * (1 - error_of()) / RUNS) ** 0.5  # three standard errors of a share of the runs


@pytest.mark.parametrize("documents", [20, 200, *(pytest.param(n, marks=pytest.mark.trial) for n in (60, 1000))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_candidate_that_is_the_margin_worse_passes_no_more_often_than_promised(kind: str, documents: int) -> None:
    for margin in MARGINS if documents != 200 else MARGINS[-1:]:
        assert passing(gate, KINDS[kind], documents, -margin, runs=RUNS, margin=margin) <= MOST


@pytest.mark.parametrize(
    ("documents", "better", "attempt", "least"),
    [(200, 4, 1, 0.95), (1000, 2, 1, 0.95), (1000, 2, 5, 0.9)],  # the last is the fifth that a champion meets
)
def test_a_better_candidate_passes(documents: int, better: float, attempt: int, least: float) -> None:
    assert passing(gate, KINDS["normal, 12 points"], documents, better, runs=100, attempt=attempt) >= least


@pytest.mark.parametrize("are_fresh", [False, True])
@pytest.mark.parametrize("documents", [200, pytest.param(1000, marks=pytest.mark.trial)])
@pytest.mark.parametrize("kind", STEPS)
def test_the_champion_falls_by_more_than_the_margin_in_at_most_one_chain_of_twenty(
    kind: str, documents: int, are_fresh: bool
) -> None:
    fell, champion = fallen(documents, chains=100, step=STEPS[kind], are_fresh=are_fresh)
    assert fell <= 0.1 and champion > (80 if kind == "usual" else 79.7)


def test_the_simulations_can_fail() -> None:
    """Student's interval overlooks rare losses, and so it does with one document more that lost everything."""
    assert passing(student, KINDS["1% lose all"], 20, -1, runs=RUNS) > 0.5
    assert passing(unseen, KINDS["1% lose all"], 1000, -1, runs=2000) > 0.02
