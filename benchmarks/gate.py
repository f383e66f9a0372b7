"""What the gate lets through: chains of retrainings, and the power for one candidate, in simulation.

    python -m benchmarks.gate [--chains 1000] [--json]

A model's score of a document is its true mean plus a normal deviation of its own, so that the paired difference of two
models deviates by 12 points from document to document. A candidate's true mean is that of the champion it was trained
beside plus N(-0.5, 1.5). Each chain has 30 candidates. `gate` judges by `training.mlflow.gate` with its standard
policy: within 1 point of the champion and of the best champion, the k-th candidate of a best champion at a k-th of the
error rate. `zero` is the rule of before: refused only where the whole 95% interval lies below zero.

Documents are `the same` for all candidates (a version of a data set is judged on again and again: its chance stays with
a model) or `fresh` for each.

    fell       share of chains in which the champion's true mean was at some time more than 1 point below that of the
               best champion before it
    champion   mean of the last champion's true mean; the first has 80
    promoted   candidates of 30
    passes     share of first candidates that are truly 2 points better, and truly 3 points worse, and are promoted

Measured, 1,000 chains:

    rule   documents  of them      fell  champion  promoted  passes +2, -3
    zero          20  the same   100.0%      69.2      27.9  99.5%, 80.0%
    zero          20  fresh      100.0%      68.4      28.2  99.5%, 80.0%
    zero         200  the same    99.8%      82.7      21.4  100.0%, 5.3%
    zero         200  fresh       99.7%      81.3      22.4  100.0%, 5.3%
    zero        1000  the same    55.9%      89.2      16.5  100.0%, 0.0%
    zero        1000  fresh       65.1%      88.8      16.9  100.0%, 0.0%
    gate          20  the same     1.8%      80.2       0.2  18.6%, 0.3%
    gate          20  fresh        2.6%      80.4       0.4  18.6%, 0.3%
    gate          60  the same     0.5%      81.0       0.5  48.2%, 0.1%
    gate          60  fresh        2.0%      82.2       1.4  48.2%, 0.1%
    gate         200  the same     0.4%      85.3       3.1  93.3%, 0.0%
    gate         200  fresh        2.6%      87.4       5.4  93.3%, 0.0%
    gate        1000  the same     1.2%      90.9      11.7  100.0%, 0.0%
    gate        1000  fresh        1.6%      90.8      12.1  100.0%, 0.0%
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from training.metrics.bootstrap import Interval
from training.metrics.intervals import difference_interval, level_of
from training.mlflow.policy import STANDARD_POLICY

PAIRED_DEVIATION, STEP, START, CANDIDATES = 12.0, (-0.5, 1.5), 80.0, 30
SIZES = (20, 60, 200, 1000)

Rule = Callable[[np.ndarray, int], bool]  # candidate minus another model, number of the candidate -> may it pass


def gate(differences: np.ndarray, attempt: int) -> bool:
    return _interval(differences, attempt).low >= -STANDARD_POLICY.margin


def zero(differences: np.ndarray, attempt: int) -> bool:
    return _interval(differences, 1).high >= 0


def _interval(differences: np.ndarray, attempt: int) -> Interval:
    return difference_interval(differences, level=level_of(STANDARD_POLICY.level, attempt))


@dataclass(frozen=True, slots=True)
class Chains:
    """What became of chains of retrainings (shares and means over them)."""

    fell: float
    champion: float
    promoted: float


class _Model:
    """A model: its true mean, and its scores of documents."""

    def __init__(self, mean: float, documents: int, draws: np.random.Generator) -> None:
        self.mean, self.draws = mean, draws
        self.scores = self._drawn(documents)

    def refresh(self) -> None:
        self.scores = self._drawn(len(self.scores))

    def _drawn(self, documents: int) -> np.ndarray:
        return self.mean + self.draws.normal(0, PAIRED_DEVIATION / 2**0.5, documents)


def simulate_chains(
    rule: Rule, documents: int, *, chains: int, meets_best: bool = True, are_fresh: bool = False, seed: int = 0
) -> Chains:
    """Return what a rule makes of chains of retrainings judged on so many documents."""
    draws = np.random.default_rng([seed, documents])
    fell, last, promoted = 0, [], 0
    for _ in range(chains):
        champion = best = _Model(START, documents, draws)
        highest, has_fallen, attempt = START, False, 0
        for _ in range(CANDIDATES):
            candidate = _Model(champion.mean + draws.normal(*STEP), documents, draws)
            attempt += 1
            if are_fresh:
                champion.refresh()
                if best is not champion:
                    best.refresh()
            rivals = {id(model): model for model in ((champion, best) if meets_best else (champion,))}
            if not all(rule(candidate.scores - model.scores, attempt) for model in rivals.values()):
                continue
            champion, promoted = candidate, promoted + 1
            if candidate.scores.mean() >= best.scores.mean():
                best, attempt = candidate, 0
            has_fallen |= champion.mean < highest - STANDARD_POLICY.margin
            highest = max(highest, champion.mean)
        fell += has_fallen
        last.append(champion.mean)
    return Chains(fell / chains, float(np.mean(last)), promoted / chains)


def power(rule: Rule, documents: int, gain: float, *, candidates: int, attempt: int = 1, seed: int = 1) -> float:
    """Return the share of candidates that are truly `gain` points better and pass."""
    draws = np.random.default_rng([seed, documents])
    found = draws.normal(gain, PAIRED_DEVIATION, (candidates, documents))
    return float(np.mean([rule(row, attempt) for row in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    numbers: dict[str, float] = {}
    print(f"{'rule':6}{'documents':>10}  {'of them':9}{'fell':>8}{'champion':>10}{'promoted':>10}  passes +2, -3")
    for name, rule in (("zero", zero), ("gate", gate)):
        for size in SIZES:
            shares = [power(rule, size, gain, candidates=options.chains) for gain in (2, -3)]
            for kind, are_fresh in (("the same", False), ("fresh", True)):
                found = simulate_chains(rule, size, chains=options.chains, meets_best=rule is gate, are_fresh=are_fresh)
                print(
                    f"{name:6}{size:10}  {kind:9}{found.fell:8.1%}{found.champion:10.1f}{found.promoted:10.1f}"
                    f"  {shares[0]:.1%}, {shares[1]:.1%}"
                )
                numbers[f"{name} {size} {kind} fell"] = found.fell
    if options.json:
        print(json.dumps(numbers))


if __name__ == "__main__":
    main()
