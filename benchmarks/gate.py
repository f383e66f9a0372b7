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

    rule  steps   documents  of them      fell  champion  promoted  passes +2, -3
    zero  usual          20  the same   100.0%      69.2      27.9  99.5%, 80.0%
    zero  usual          20  fresh      100.0%      67.9      28.3  99.5%, 80.0%
    zero  usual          60  the same   100.0%      74.2      25.7  100.0%, 53.2%
    zero  usual          60  fresh      100.0%      72.9      26.5  100.0%, 53.2%
    zero  usual         200  the same    99.8%      82.7      21.4  100.0%, 5.3%
    zero  usual         200  fresh      100.0%      81.0      22.6  100.0%, 5.3%
    zero  usual        1000  the same    55.9%      89.2      16.5  100.0%, 0.0%
    zero  usual        1000  fresh       66.3%      89.0      16.9  100.0%, 0.0%
    gate  usual          20  the same     0.9%      80.1       0.1  11.1%, 0.2%
    gate  usual          20  fresh        0.4%      80.2       0.2  11.1%, 0.2%
    gate  drift          20  the same     0.2%      80.0       0.1
    gate  drift          20  fresh        0.6%      80.0       0.1
    gate  edge           20  the same     4.3%      80.0       0.0
    gate  edge           20  fresh        5.1%      79.9       0.1
    gate  beyond         20  the same     3.3%      80.0       0.0
    gate  beyond         20  fresh        5.1%      79.9       0.1
    gate  usual          60  the same     0.3%      80.8       0.4  37.2%, 0.1%
    gate  usual          60  fresh        0.6%      81.3       0.7  37.2%, 0.1%
    gate  drift          60  the same     0.2%      80.0       0.1
    gate  drift          60  fresh        0.5%      80.0       0.1
    gate  edge           60  the same     2.1%      80.0       0.0
    gate  edge           60  fresh        4.5%      80.0       0.0
    gate  beyond         60  the same     1.2%      80.0       0.0
    gate  beyond         60  fresh        2.5%      80.0       0.0
    gate  usual         200  the same     0.3%      84.3       2.3  88.5%, 0.0%
    gate  usual         200  fresh        0.7%      86.0       3.7  88.5%, 0.0%
    gate  drift         200  the same     0.1%      80.0       0.1
    gate  drift         200  fresh        0.0%      79.9       0.2
    gate  edge          200  the same     3.0%      80.0       0.0
    gate  edge          200  fresh        3.3%      80.0       0.0
    gate  beyond        200  the same     1.6%      80.0       0.0
    gate  beyond        200  fresh        2.1%      80.0       0.0
    gate  usual        1000  the same     0.4%      90.9      10.6  100.0%, 0.0%
    gate  usual        1000  fresh        0.4%      90.8      10.9  100.0%, 0.0%
    gate  drift        1000  the same     0.1%      79.9       0.7
    gate  drift        1000  fresh        0.2%      79.8       1.0
    gate  edge         1000  the same     1.1%      80.0       0.0
    gate  edge         1000  fresh        2.5%      80.0       0.0
    gate  beyond       1000  the same     0.6%      80.0       0.0
    gate  beyond       1000  fresh        0.6%      80.0       0.0

    documents  lose everything  true mean  passes by Student's  by the gate
           20             1.5%       -1.5                73.5%         0.0%
           20             2.0%       -2.0                67.7%         0.0%
           20             5.0%       -5.0                36.9%         0.0%
           60             1.5%       -1.5                41.8%         0.0%
           60             2.0%       -2.0                30.1%         0.0%
           60             5.0%       -5.0                 3.3%         0.0%
          200             1.5%       -1.5                 5.6%         0.0%
          200             2.0%       -2.0                 1.9%         0.0%
          200             5.0%       -5.0                 0.0%         0.0%
         1000             1.5%       -1.5                 0.0%         0.0%
         1000             2.0%       -2.0                 0.0%         0.0%
         1000             5.0%       -5.0                 0.0%         0.0%
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
    return difference_interval(differences, level=level_of(STANDARD_POLICY.level, attempt))


def student(differences: np.ndarray, attempt: int) -> Interval:
    return _student(differences, level_of(STANDARD_POLICY.level, attempt))


def zero(differences: np.ndarray, _: int) -> Interval:
    """Return an interval that passes unless all of Student's lies below zero."""
    found = _student(differences, STANDARD_POLICY.level)
    return Interval(found.mean, 0.0 if found.high >= 0 else -100.0, found.high)


def _student(differences: np.ndarray, level: float) -> Interval:
    mean, count = float(differences.mean()), len(differences)
    half = float(stdtrit(count - 1, (1 + level) / 2) * differences.std(ddof=1)) / count**0.5
    return Interval(mean, mean - half, mean + half)


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
