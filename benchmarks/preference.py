"""How often a blind comparison of two models gives a verdict, looked at after every article, in simulation.

    python -m benchmarks.preference [--runs 10000] [--json]

A run is 300 articles. One in five is even. Of the others the challenger wins a true share, independently. A verdict is
given where the evidence reaches 20 at some time (`training.metrics.preference.Preference`), and then stands.
`wilson` is the rule of before: the 95% interval of the share so far lies on one side of a half.

Measured, 10,000 runs:

    rule       true share  verdict  of it wrong  articles, median
    wilson            50%    42.3%                             23
    wilson            55%    66.6%        11.1%                50
    wilson            60%    95.9%         3.6%                46
    wilson            65%    99.9%         1.6%                28
    wilson            70%   100.0%         0.7%                19
    wilson            80%   100.0%         0.1%                10
    evidence          50%     2.5%                             72
    evidence          55%    15.3%         0.5%               154
    evidence          60%    65.5%         0.0%               153
    evidence          65%    97.5%         0.0%                98
    evidence          70%   100.0%         0.0%                59
    evidence          80%   100.0%         0.0%                30

Readers who look at the first picture alone: which model gave it is a coin's (`team_draft`), so that two equal models
win half of the articles. Looked at after each of 60 articles, of 2,000 runs with a verdict:

    always the first picture    1.2%
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from benchmarks.command import parser_of, print_figures
from newsroom.decisions.comparison import team_draft
from training.metrics.preference import LEVEL, MIXTURE

ARTICLES, EVEN = 300, 0.2
SHARES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
Z = 1.959963984540054

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]  # articles won by the first, by the second -> is there a verdict


def is_verdict(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return where the evidence suffices, of whole arrays."""
    evidence = betaln(MIXTURE + second, MIXTURE + first) - betaln(MIXTURE, MIXTURE) + (first + second) * np.log(2)
    return evidence >= -np.log(1 - LEVEL)


def wilson(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    count = np.maximum(first + second, 1)
    share = second / count
    middle = share + Z * Z / (2 * count)
    half = Z * np.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    return (first + second > 0) & (((middle - half) / scale > 0.5) | ((middle + half) / scale < 0.5))


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of each run: whether a verdict was given, for the second of the two, and after how many articles."""

    is_given: np.ndarray
    is_second: np.ndarray
    articles: np.ndarray


def verdicts_in(share: float, *, runs: int, rule: Rule = is_verdict, seed: int = 0) -> Verdicts:
    """Return the first verdict of each run in which the second of two models wins a true share of the articles."""
    draws = np.random.default_rng(seed)
    is_even, is_second = draws.random((runs, ARTICLES)) < EVEN, draws.random((runs, ARTICLES)) < share
    first, second = (np.cumsum(won & ~is_even, axis=1) for won in (~is_second, is_second))
    reached = rule(first, second)
    at = reached.argmax(axis=1)
    row = np.arange(runs)
    return Verdicts(reached.any(axis=1), second[row, at] > first[row, at], at + 1)


def verdicts_by_place(*, runs: int, articles: int = 60, seed: int = 0) -> float:
    """Return the share of runs with a verdict on two equal models, of readers who always take the first picture."""
    draws, wins = np.random.default_rng(seed), np.zeros((runs, articles), bool)
    for run, article in np.ndindex(runs, articles):
        first, second = (draws.permutation(30).tolist() for _ in range(2))
        wins[run, article] = next(iter(team_draft(first, second, top=1, seed=f"{run}-{article}").values()))
    won = np.cumsum(wins, axis=1)
    return float(is_verdict(np.arange(1, articles + 1) - won, won).any(axis=1).mean())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    numbers: dict[str, float] = {}
    print(f"{'rule':10}{'true share':>11}{'verdict':>9}{'of it wrong':>13}{'articles, median':>18}")
    for name, rule in (("wilson", wilson), ("evidence", is_verdict)):
        for share in SHARES:
            found = verdicts_in(share, runs=options.runs, rule=rule)
            given = found.is_given
            wrong = "" if share == 0.5 else f"{1 - found.is_second[given].mean():.1%}"
            print(f"{name:10}{share:11.0%}{given.mean():9.1%}{wrong:>13}{np.median(found.articles[given]):18.0f}")
            numbers[f"{name} {share}"] = float(given.mean())
    numbers["by place"] = verdicts_by_place(runs=min(options.runs, 2_000))
    print(f"always the first picture: {numbers['by place']:.1%}")
    print_figures(options, numbers)


if __name__ == "__main__":
    main()
