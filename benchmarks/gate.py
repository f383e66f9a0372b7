"""What the gate lets through: its bound over many kinds of difference, its power, and chains of retrainings, simulated.

    python -m benchmarks.gate [--runs 1000] [--chains 1000] [--sizes 20 60 ...] [--json]

`multilink promote` judges by `training.metrics.intervals`. First table: candidates that are exactly the margin worse
(0.5, 1, 2, 5 points), and the share of them that passes, of all margins the highest; 1.25% may. The kinds of difference
are in `KINDS`; all have the true mean that is wanted. Four bounds:

    student   Student's over the documents
    unseen    Student's over the documents and one more that lost everything
    betting   a bettor's capital, Waudby-Smith and Ramdas 2024 (predictable plug-in, bets of at most 3/4)
    gate      Gaffke's: the one that decides

The second: candidates that are truly better by some points, margin 1, and the share that passes. The third: chains of
30 retrainings. A candidate's true mean is that of the champion it was trained beside plus a step; the paired difference
of two models deviates by 12 points from document to document; documents are `the same` for all candidates or `fresh`
for each. `fell` is the share of chains in which the champion's true mean was at some time more than a point below that
of the best champion before it. Results are in the guide, `explanation/promises.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import stdtrit

from benchmarks.command import parser_of, print_figures
from training.metrics.intervals import level_of, probability_below
from training.mlflow.policy import STANDARD_POLICY

PAIRED_DEVIATION, START, CANDIDATES = 12.0, 80.0, 30
STEPS = {"usual": (-0.5, 1.5), "drift": (-0.6, 0.3), "edge": (-1.05, 0.02), "beyond": (-1.2, 0.2)}
SIZES, MARGINS = (20, 60, 200, 1000, 5000), (0.5, 1.0, 2.0, 5.0)
LARGEST_BET = 0.75

Draws = np.random.Generator
Kind = Callable[[Draws, tuple[int, int], float], np.ndarray]  # runs x documents, true mean -> differences
Rule = Callable[[np.ndarray, float, float], np.ndarray]  # runs x documents, margin, error -> which pass


def _normal(deviation: float) -> Kind:
    return lambda draws, shape, mean: draws.normal(mean, deviation, shape)


def _mixed(share: float, loss: Callable[[Draws, tuple[int, int]], np.ndarray], lost: float, noise: float) -> Kind:
    """Return differences of which a share loses `lost` on the mean; the others differ by what the mean then asks."""

    def draw(draws: Draws, shape: tuple[int, int], mean: float) -> np.ndarray:
        others = draws.normal((mean + share * lost) / (1 - share), noise, shape)
        return np.where(draws.random(shape) < share, loss(draws, shape), others)

    return draw


def _total(share: float, noise: float = 0.0) -> Kind:
    return _mixed(share, lambda _, shape: np.full(shape, -100.0), 100.0, noise)


def _ties(draws: Draws, shape: tuple[int, int], mean: float) -> np.ndarray:
    return np.where(draws.random(shape) < 0.7, 0.0, draws.normal(mean / 0.3, 10, shape))


def _steps(draws: Draws, shape: tuple[int, int], mean: float) -> np.ndarray:
    """Return steps of AUC: 15% of the documents gain 25 points, and as many lose as the mean asks."""
    at = draws.random(shape)
    return np.where(at < 0.15, 25.0, np.where(at < 0.3 - mean / 25, -25.0, 0.0))


def _heavy(draws: Draws, shape: tuple[int, int], mean: float) -> np.ndarray:
    return mean + np.clip(3 * draws.standard_t(1.5, shape), -95, 95)


def _noise(draws: Draws, shape: tuple[int, int], mean: float) -> np.ndarray:
    """Return differences of 1.01 to 1.31 points to either side, and 1.55% that lose everything."""
    noise = draws.choice([-1, 1], shape) * draws.uniform(1.01, 1.31, shape)
    return np.where(draws.random(shape) < 0.0155, -100.0, noise + (mean + 1.55) / 0.9845)


KINDS: Mapping[str, Kind] = {
    "normal, 12 points": _normal(12),
    "normal, 3 points": _normal(3),
    "70% ties": _ties,
    "steps of AUC": _steps,
    "heavy tails": _heavy,
    "noise, 1.55% lose all": _noise,
    "0.3% lose all": _total(0.003),
    "1% lose all": _total(0.01),
    "3% lose all, others gain": _total(0.03, 1.0),
    "10% lose all, others gain": _total(0.1, 1.0),
    "4% lose 85, others gain": _mixed(0.04, lambda _, shape: np.full(shape, -85.0), 85.0, 0.8),
    "a language of 15% loses 30": _mixed(0.15, lambda draws, shape: draws.normal(-30, 12, shape), 30.0, 5.0),
}


def student(differences: np.ndarray, margin: float, error: float) -> np.ndarray:
    count = differences.shape[1]
    half = stdtrit(count - 1, 1 - error) * differences.std(axis=1, ddof=1) / count**0.5
    return np.asarray(differences.mean(axis=1) - half >= -margin)


def unseen(differences: np.ndarray, margin: float, error: float) -> np.ndarray:
    return student(np.column_stack([differences, np.full(len(differences), -100.0)]), margin, error)


def betting(differences: np.ndarray, margin: float, error: float) -> np.ndarray:
    scaled, mean = (differences + 100) / 200, (100 - margin) / 200
    before = np.arange(1, scaled.shape[1] + 1)
    means = (0.5 + np.cumsum(scaled, axis=1)) / (before + 1)
    variances = (0.25 + np.cumsum((scaled - means) ** 2, axis=1)) / (before + 1)
    variances = np.column_stack([np.full(len(scaled), 0.25), variances[:, :-1]])
    bets = np.minimum(np.sqrt(-2 * np.log(error) / (scaled.shape[1] * variances)), LARGEST_BET / mean)
    return np.asarray(np.cumsum(np.log1p(bets * (scaled - mean)), axis=1).max(axis=1) >= -np.log(error))


def gate(differences: np.ndarray, margin: float, error: float) -> np.ndarray:
    counts = np.ones(differences.shape[1])
    return np.array([probability_below(100 - margin, row + 100, counts) <= error for row in differences])


RULES: Mapping[str, Rule] = {"student": student, "unseen": unseen, "betting": betting, "gate": gate}


def error_of(attempt: int = 1) -> float:
    """Return the share of candidates of the margin, the k-th that a champion meets, that may pass."""
    return (1 - level_of(STANDARD_POLICY.level, attempt)) / 2


def passing(
    rule: Rule, kind: Kind, documents: int, mean: float, *, runs: int, margin: float = 1.0, attempt: int = 1
) -> float:
    """Return the share of candidates that pass a rule."""
    draws = np.random.default_rng([documents, round(100 * margin), round(100 * abs(mean))])
    found = np.clip(kind(draws, (runs, documents), mean), -100, 100)
    return float(rule(found, margin, error_of(attempt)).mean())


class _Model:
    """A model: its true mean, and its scores of documents."""

    def __init__(self, mean: float, documents: int, draws: Draws) -> None:
        self.mean, self.draws = mean, draws
        self.scores = self._drawn(documents)

    def refresh(self) -> None:
        self.scores = self._drawn(len(self.scores))

    def _drawn(self, documents: int) -> np.ndarray:
        return self.mean + self.draws.normal(0, PAIRED_DEVIATION / 2**0.5, documents)


def fallen(documents: int, *, chains: int, step: tuple[float, float], are_fresh: bool) -> tuple[float, float]:
    """Return the share of chains of retrainings that fell, and the mean of the last champion's true mean."""
    draws = np.random.default_rng([0, documents])
    fell, last = 0, []

    def passes(candidate: _Model, model: _Model, margin: float, attempt: int) -> bool:
        found = np.clip(candidate.scores - model.scores, -100, 100)
        return bool(student(found[None], margin, 0.1)[0] and gate(found[None], margin, error_of(attempt))[0])

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
            rivals = {id(model): model for model in (champion, best)}.values()
            if not all(passes(candidate, model, STANDARD_POLICY.margin, attempt) for model in rivals):
                continue
            champion = candidate
            if passes(candidate, best, 0.0, attempt):
                best, attempt = candidate, 0
            has_fallen |= champion.mean < highest - STANDARD_POLICY.margin
            highest = max(highest, champion.mean)
        fell += has_fallen
        last.append(champion.mean)
    return fell / chains, float(np.mean(last))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    numbers: dict[str, float] = {}
    runs = options.runs
    deviation = (error_of() * (1 - error_of()) / runs) ** 0.5
    print(f"pass though the margin worse, of {runs} candidates (standard error {100 * deviation:.2f} points at 1.25%)")
    print(f"{'differences':28}documents" + "".join(f"{rule:>9}" for rule in RULES))
    for name, kind in KINDS.items():
        for size in options.sizes:
            found = {
                each: max(passing(rule, kind, size, -margin, runs=runs, margin=margin) for margin in MARGINS)
                for each, rule in RULES.items()
            }
            numbers |= {f"{name} {size} {each}": share for each, share in found.items()}
            print(f"{name:28}{size:9}" + "".join(f"{share:9.1%}" for share in found.values()), flush=True)
    print("\npass, margin 1\ndifferences          better by  documents" + "".join(f"{rule:>9}" for rule in RULES))
    for name, gain in (("normal, 12 points", 0), ("normal, 12 points", 2), ("normal, 12 points", 4),
                       ("normal, 3 points", 0), ("70% ties", 0), ("70% ties", 2)):  # fmt: skip
        for size in options.sizes:
            shares = [passing(rule, KINDS[name], size, gain, runs=min(runs, 400)) for rule in RULES.values()]
            numbers[f"power {name} {gain} {size}"] = shares[-1]
            print(f"{name:20}{gain:10}{size:11}" + "".join(f"{share:9.1%}" for share in shares), flush=True)
    if options.chains:
        print("\nsteps   documents  of them      fell  champion")
        for kind_of_step, step in STEPS.items():
            for size in (each for each in options.sizes if each <= 1000):
                for which, are_fresh in (("the same", False), ("fresh", True)):
                    fell, champion = fallen(size, chains=options.chains, step=step, are_fresh=are_fresh)
                    numbers[f"{kind_of_step} {size} {which} fell"] = fell
                    print(f"{kind_of_step:8}{size:9}  {which:9}{fell:8.1%}{champion:10.1f}", flush=True)
    print_figures(options, numbers)


if __name__ == "__main__":
    main()
