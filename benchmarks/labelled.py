"""How often the intervals of `multilink measure` hold, and how wide they are beside those of plain sampling, simulated.

    python -m benchmarks.labelled [--corpora 1000] [--json]

A corpus has 2,000 images, 70% of them linked. A link is right with a probability that has a mean (`right`) and rises
with its score (`slope`; 0: the score says nothing; negative: it misleads). Four in ten of the other images have a
sentence that goes with them. `labels` images are drawn as `multilink label` draws them. Plain: as many images
drawn from all, with the interval of Clopper and Pearson.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.command import parser_of, print_figures
from training.metrics.labelled import Labels, Population, clopper_pearson, drawn, measure, strata_of

IMAGES, PARTS, LINKED, MISSED = 2000, 3, 0.7, 0.4
WORLDS = ((0.6, 1.0), (0.6, 0.0), (0.6, -0.8), (0.8, 0.8), (0.95, 0.3), (0.98, 0.0))
NAMES = ("precision", "recall", "auc")


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of corpora whose true value lies in the interval, and mean widths: precision, recall, AUC; plain."""

    holds: np.ndarray
    widths: np.ndarray
    plain: np.ndarray


def simulate(right: float, slope: float, labels: int, *, corpora: int) -> Found:
    """Return what comes of measuring corpora of one kind."""
    holds, widths, plain = [], [], []
    for seed in range(corpora):
        draws = np.random.default_rng([labels, seed])
        is_linked, scores = draws.random(IMAGES) < LINKED, draws.beta(5, 2, IMAGES)
        chance = np.clip(right + slope * (scores - scores.mean()), 0, 1)
        is_right = is_linked & (draws.random(IMAGES) < chance)
        has_text = is_right | (draws.random(IMAGES) < MISSED)
        population = Population(strata=strata_of(is_linked, scores, PARTS), is_linked=is_linked, scores=scores)
        rows = drawn(population.strata, labels, draws)
        found = measure(population, Labels(rows=rows, is_right=is_right[rows], has_text=has_text[rows]))
        good, bad = scores[is_right], np.sort(scores[is_linked & ~is_right])
        auc = np.searchsorted(bad, good).mean() / len(bad)
        truth = (is_right.sum() / is_linked.sum(), is_right.sum() / has_text.sum(), auc)
        intervals = [None if each is None else each.interval for each in (found.precision, found.recall)] + [found.auc]
        holds.append([np.nan if i is None else i.low <= t <= i.high for i, t in zip(intervals, truth, strict=True)])
        widths.append([np.nan if i is None else i.high - i.low for i in intervals])
        chosen = draws.choice(IMAGES, labels, replace=False)
        shares = [(is_right[chosen].sum(), each[chosen].sum()) for each in (is_linked, has_text)]
        plain.append([np.subtract(*clopper_pearson(k / n, n, 0.95)[::-1]) for k, n in shares])
    return Found(*(np.nanmean(np.array(each, float), axis=0) for each in (holds, widths, plain)))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--corpora", type=int, default=1000)
    options = parser.parse_args()
    numbers = {}
    print("right  slope labels   holds: precision recall    AUC   width: precision (plain)   recall (plain)    AUC")
    for right, slope in WORLDS:
        for labels in (50, 200):
            found = simulate(right, slope, labels, corpora=options.corpora)
            holds = " ".join(f"{each:8.1%}" for each in found.holds)
            both = "   ".join(
                f"{100 * w:5.1f} ({100 * p:4.1f})" for w, p in zip(found.widths, found.plain, strict=False)
            )
            print(f"{right:5.0%} {slope:6.1f} {labels:6}   {holds}   {both}   {100 * found.widths[2]:5.1f}", flush=True)
            numbers[f"{right} {slope} {labels}"] = [each.tolist() for each in (found.holds, found.widths, found.plain)]
    print_figures(options, numbers)


if __name__ == "__main__":
    main()
