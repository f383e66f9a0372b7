"""What the probabilities of a search promise, by the size of the archive, in simulation.

    python -m benchmarks.search [--archives 100] [--json]

An archive has one right picture for each text. The cosine of a text with it is N(0.55, 0.12), with each other picture
N(0.20, 0.12). 400 validation texts, 4 a document, are searched for, and probabilities are fitted as for an index
(`newsroom.archive.index`). Then 1,000 other texts are.

    found       share of the other texts with the right picture among the first ten
    shown       the mean probability of that, as shown
    off         how far the shown probability is from what is true, mean over the texts: by groups of ten
    first is right, shown   the same of the first picture alone
    link        the probability that a calibration inside documents of five pictures gives that first picture: what was
                shown before

Measured, means over 100 archives:

    pictures   found  shown   off   first is right  shown   link
         100   94.5%  94.3%  2.0%            65.2%  53.9%  91.9%
        1000   71.6%  71.4%  3.9%            38.2%  33.2%  98.4%
       10000   42.7%  42.6%  4.6%            18.5%  17.4%  99.8%
      100000   21.0%  20.9%  3.9%             7.9%   8.0% 100.0%
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from benchmarks.command import parser_of, print_figures
from newsroom.archive.index import FIRST
from training.metrics.curves import ProbabilityCurve, fit_curve

RIGHT, WRONG, SPREAD = 0.55, 0.20, 0.12
TEXTS, OTHERS, PER_DOCUMENT, INSIDE = 400, 1000, 4, 5
SIZES = (100, 1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class Searches:
    """The first ten pictures of texts: cosines, n x 10 by falling cosine, and which are right."""

    cosines: np.ndarray
    are_right: np.ndarray

    @property
    def are_found(self) -> np.ndarray:
        return self.are_right.any(axis=1)


def searched(size: int, texts: int, draws: np.random.Generator) -> Searches:
    """Return what searches in an archive of so many pictures find."""
    right = draws.normal(RIGHT, SPREAD, texts)
    few = min(FIRST, size - 1)
    # The largest of many numbers, one after the other: shares below them are 1 - a sum of exponentials / the whole sum.
    above = draws.standard_exponential((texts, few)).cumsum(axis=1)
    whole = above[:, -1:] + draws.standard_gamma(size - few, (texts, 1))
    wrong = norm.isf(above / whole, WRONG, SPREAD)
    every = np.concatenate([right[:, None], wrong], axis=1)
    order = np.argsort(-every, axis=1)[:, :FIRST]
    return Searches(np.take_along_axis(every, order, axis=1), order == 0)


def fitted(found: Searches) -> tuple[ProbabilityCurve, ProbabilityCurve]:
    """Return the probability that one of the first ten is right, and that a picture is."""
    return fit_curve(found.cosines[:, 0], found.are_found), fit_curve(found.cosines.ravel(), found.are_right.ravel())


def distance(shown: np.ndarray, are_right: np.ndarray) -> float:
    """Return how far shown probabilities are from the shares that are right, mean over groups of equal size."""
    groups = np.array_split(np.argsort(shown, kind="stable"), 10)
    return float(np.mean([abs(shown[rows].mean() - are_right[rows].mean()) for rows in groups]))


def simulate(size: int, *, archives: int) -> dict[str, float]:
    """Return means over archives of one size."""
    rows = []
    for seed in range(archives):
        draws = np.random.default_rng([size, seed])
        any_of_first, pictures = fitted(searched(size, TEXTS, draws))
        _, inside = fitted(searched(INSIDE, TEXTS, draws))
        other = searched(size, OTHERS, draws)
        shown, first = any_of_first.probability(other.cosines[:, 0]), pictures.probability(other.cosines[:, 0])
        rows.append(
            {
                "found": other.are_found.mean(),
                "shown": shown.mean(),
                "off": distance(shown, other.are_found),
                "first": other.are_right[:, 0].mean(),
                "first shown": first.mean(),
                "link": inside.probability(other.cosines[:, 0]).mean(),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--archives", type=int, default=100)
    options = parser.parse_args()
    numbers = {}
    print("pictures   found  shown   off   first is right  shown   link")
    for size in SIZES:
        found = simulate(size, archives=options.archives)
        print(
            f"{size:8}{found['found']:8.1%}{found['shown']:7.1%}{found['off']:6.1%}{found['first']:17.1%}"
            f"{found['first shown']:7.1%}{found['link']:7.1%}",
            flush=True,
        )
        numbers[str(size)] = found
    print_figures(options, numbers)


if __name__ == "__main__":
    main()
