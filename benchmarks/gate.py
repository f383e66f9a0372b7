"""What the gate lets through: chains of retrainings, the power for one candidate, and rare losses, in simulation.

    python -m benchmarks.gate [--chains 1000] [--json]

A model's score of a document is its true mean plus a normal deviation of its own, so that the paired difference of two
models deviates by 12 points from document to document. A candidate's true mean is that of the champion it was trained
beside plus a step. Each chain has 30 candidates. `gate` judges by `training.mlflow.gate` with its standard policy:
within 1 point of the champion and of the best champion, the k-th candidate of a best champion at half of a k-th of the
error rate; a candidate becomes the best champion where it is shown to be better than that. `zero` is the rule of
before: refused only where the whole 95% interval lies below zero.

    usual      steps N(-0.5, 1.5): some candidates are better
    drift      N(-0.6, 0.3): each is a little worse, within the margin
    edge       N(-1.05, 0.02): each is just beyond the margin
    beyond     N(-1.2, 0.2)

Documents are `the same` for all candidates (a version of a data set is judged on again and again: its chance stays with
a model) or `fresh` for each.

    fell       share of chains in which the champion's true mean was at some time more than 1 point below that of the
               best champion before it
    champion   mean of the last champion's true mean; the first has 80
    promoted   candidates of 30
    passes     share of first candidates that are truly 2 points better, and truly 3 points worse, and are promoted

The last table: a share of the documents loses everything, the others are as before. `Student` is the interval that does
not hold there; `gate` uses one that does (`training.metrics.intervals.difference_interval`).

Measured, 1,000 chains:

TABLE
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from training.metrics.bootstrap import Interval
from training.metrics.intervals import difference_interval, level_of
from training.mlflow.policy import STANDARD_POLICY

PAIRED_DEVIATION, START, CANDIDATES = 12.0, 80.0, 30
STEPS = {"usual": (-0.5, 1.5), "drift": (-0.6, 0.3), "edge": (-1.05, 0.02), "beyond": (-1.2, 0.2)}
SIZES = (20, 60, 200, 1000)
LOSSES = (0.015, 0.02, 0.05)  # shares of documents that lose everything

Rule = Callable[[np.ndarray, int], Interval]  # candidate minus another model, number of the candidate -> the interval


def gate(differences: np.ndarray, attempt: int) -> Interval:
    return difference_interval(differences, STANDARD_POLICY.margin, level=level_of(STANDARD_POLICY.level, attempt))


def student(differences: np.ndarray, attempt: int) -> Interval:
    mean, count = float(differences.mean()), len(differences)
    half = stdtrit(count - 1, (1 + level_of(STANDARD_POLICY.level, attempt)) / 2) * differences.std(ddof=1)
    return Interval(mean, mean - half / count**0.5, mean + half / count**0.5)


def zero(differences: np.ndarray, _: int) -> Interval:
    """Return an interval that passes unless all of Student's lies below zero."""
    mean, count = float(differences.mean()), len(differences)
    high = mean + stdtrit(count - 1, 0.975) * differences.std(ddof=1) / count**0.5
    return Interval(mean, 0.0 if high >= 0 else -100.0, high)


def passes(found: Interval) -> bool:
    return found.low >= -STANDARD_POLICY.margin


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
    rule: Rule,
    documents: int,
    *,
    chains: int,
    step: tuple[float, float] = STEPS["usual"],
    meets_best: bool = True,
    are_fresh: bool = False,
    seed: int = 0,
) -> Chains:
    """Return what a rule makes of chains of retrainings judged on so many documents."""
    draws = np.random.default_rng([seed, documents])
    fell, last, promoted = 0, [], 0
    for _ in range(chains):
        champion = best = _Model(START, documents, draws)
        highest, has_fallen, attempt = START, False, 0
        for _ in range(CANDIDATES):
            candidate = _Model(champion.mean + draws.normal(*step), documents, draws)
            attempt += 1
            if are_fresh:
                champion.refresh()
                if best is not champion:
                    best.refresh()
            rivals = {id(model): model for model in ((champion, best) if meets_best else (champion,))}
            if not all(passes(rule(candidate.scores - model.scores, attempt)) for model in rivals.values()):
                continue
            champion, promoted = candidate, promoted + 1
            if rule(candidate.scores - best.scores, attempt).low > 0:
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
    return float(np.mean([passes(rule(row, attempt)) for row in found]))


def rare_losses(rule: Rule, documents: int, share: float, *, candidates: int, seed: int = 2) -> float:
    """Return the share of candidates that lose everything on a share of the documents, and pass."""
    draws = np.random.default_rng([seed, documents])
    found = -100.0 * (draws.random((candidates, documents)) < share)
    return float(np.mean([passes(rule(row, 1)) for row in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    numbers: dict[str, float] = {}
    print("rule  steps   documents  of them      fell  champion  promoted  passes +2, -3")
    for name, rule, kinds in (("zero", zero, ("usual",)), ("gate", gate, tuple(STEPS))):
        for size in SIZES:
            shares = ", ".join(f"{power(rule, size, gain, candidates=options.chains):.1%}" for gain in (2, -3))
            for kind in kinds:
                for which, are_fresh in (("the same", False), ("fresh", True)):
                    found = simulate_chains(
                        rule, size, chains=options.chains, step=STEPS[kind], meets_best=rule is gate,
                        are_fresh=are_fresh,
                    )  # fmt: skip
                    print(
                        f"{name:6}{kind:8}{size:9}  {which:9}{found.fell:8.1%}{found.champion:10.1f}"
                        f"{found.promoted:10.1f}  {shares if kind == 'usual' else ''}".rstrip(), flush=True
                    )  # fmt: skip
                    numbers[f"{name} {kind} {size} {which} fell"] = found.fell
    print("\ndocuments  lose everything  true mean  passes by Student's  by the gate")
    for size in SIZES:
        for share in LOSSES:
            by = [rare_losses(rule, size, share, candidates=options.chains) for rule in (student, gate)]
            print(f"{size:9}{share:17.1%}{-100 * share:11.1f}{by[0]:21.1%}{by[1]:13.1%}", flush=True)
            numbers[f"rare {size} {share}"] = by[1]
    if options.json:
        print(json.dumps(numbers))


if __name__ == "__main__":
    main()
