"""How often does `--precision` keep fewer right links than it says, and how many right links does it keep at all?

    python -m benchmarks.precision [--draws 200]

`training.metrics.curves` finds the thresholds that `multilink link --precision` takes, by some documents with known
links. Here such documents are drawn. The similarity of a link decides how likely it is true, and links of one document
are true together more often than not. A draw is wrong where some level that it proves is above the true precision of
its threshold: the mean over 20,000 further documents. `found` is the share of all right links that the threshold for
90% keeps, 0 where there is none. Beside it stands what takes links for independent: the exact bound of Clopper and
Pearson of the share of all links that is true, at a twentieth of the error for each of twenty thresholds, held against
that share of the further documents.

    alike        documents of five links
    mixed        of one to eight links, the more the less of them true
    heavy tail   of five links, 99% of them true, and one in fifty of a hundred links, all false

Measured (200 draws each):

                             by document    by link
    documents                wrong  found   wrong  found
    alike               50     0.0%    17%   1.0%    26%
    alike              100     0.0%    51%   0.0%    59%
    alike              300     0.0%    70%   0.5%    72%
    mixed               50     0.0%     3%   1.0%     9%
    mixed              100     0.5%    32%   0.0%    29%
    mixed              300     0.0%    62%   1.0%    57%
    heavy tail          50     0.0%    17%  38.0%    38%
    heavy tail         100     0.0%    27%  41.5%    16%
    heavy tail         300     0.0%    41%  49.0%     2%
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit
from scipy.stats import beta, norm

from benchmarks.command import parser_of, print_figures
from training.data.ragged import Bool, Float64, Int64
from training.metrics.curves import ERROR, FEWEST_KEPT, LEVELS, precision_points

Drawn = tuple[Float64, Bool, Int64]  # similarity, whether it is true, and document of each link
Points = list[tuple[float, float]]  # threshold, proven precision
CORRELATION, FURTHER, SHOWN, THRESHOLDS = 0.3, 20_000, 0.9, 20


def _true(numbers: np.random.Generator, shares: Float64, owners: Int64) -> Bool:
    """Draw which links are true, those of a document alike more often than not."""
    common = numbers.normal(size=owners[-1] + 1)[owners]
    own = numbers.normal(size=len(owners))
    return np.asarray(norm.cdf(np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own) < shares)


def alike(seed: int, documents: int) -> Drawn:
    numbers, owners = np.random.default_rng(seed), np.repeat(np.arange(documents), 5)
    similarities = numbers.random(len(owners))
    return similarities, _true(numbers, expit(8 * (similarities - 0.35)), owners), owners


def mixed(seed: int, documents: int) -> Drawn:
    numbers = np.random.default_rng(seed)
    sizes = numbers.integers(1, 9, size=documents)
    owners, similarities = np.repeat(np.arange(documents), sizes), numbers.random(sizes.sum())
    shares = expit(8 * (similarities - 0.25) - np.repeat(sizes, sizes) / 4)
    return similarities, _true(numbers, shares, owners), owners


def heavy_tail(seed: int, documents: int) -> Drawn:
    numbers = np.random.default_rng(seed)
    is_large = numbers.random(documents) < 0.02
    owners = np.repeat(np.arange(documents), np.where(is_large, 100, 5))
    return numbers.random(len(owners)), ~is_large[owners] & (numbers.random(len(owners)) < 0.99), owners


DATA: dict[str, Callable[[int, int], Drawn]] = {"alike": alike, "mixed": mixed, "heavy tail": heavy_tail}


def by_document(drawn: Drawn, documents: int) -> Points:
    return [(point.similarity, point.precision) for point in precision_points(*drawn, documents)]


def by_link(drawn: Drawn, documents: int) -> Points:
    """Return what Clopper and Pearson's bound proves of independent links."""
    order = np.argsort(-drawn[0])
    kept = np.unique(np.linspace(FEWEST_KEPT, len(order), THRESHOLDS).astype(int))
    true = np.cumsum(drawn[1][order])[kept - 1]
    bounds = beta.ppf(ERROR / len(kept), np.maximum(true, 1), kept - true + 1)
    found = ((level, np.flatnonzero(bounds >= level)) for level in LEVELS)
    return [(float(drawn[0][order[kept[places[-1]] - 1]]), level) for level, places in found if len(places)]


def measured(draw: Callable[[int, int], Drawn], documents: int, draws: int) -> list[str]:
    """Return in how many draws a level is wrong, and which share of right links 90% keeps, of both ways."""
    similarities, are_true, owners = draw(1_000_000, FURTHER)
    order = np.argsort(-similarities)

    def share_above(threshold: float, way: object) -> float:
        kept = order[: np.searchsorted(-similarities[order], -threshold, side="right")]
        counts, true = np.bincount(owners[kept]), np.bincount(owners[kept], weights=are_true[kept])
        return float((true[counts > 0] / counts[counts > 0]).mean() if way is by_document else are_true[kept].mean())

    cells = []
    for way in (by_document, by_link):
        wrong, kept = 0, []
        for seed in range(draws):
            drawn = draw(seed, documents)
            points = way(drawn, documents)
            wrong += any(share_above(threshold, way) < level for threshold, level in points)
            reached = [threshold for threshold, level in points if level >= SHOWN]
            kept.append(drawn[1][drawn[0] >= reached[0]].sum() / drawn[1].sum() if reached else 0.0)
        cells += [f"{wrong / draws:.1%}", f"{np.mean(kept):.0%}"]
    return cells


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=200)
    options, found = parser.parse_args(), {}
    print(f"{'':<12}{'':>10}   by document    by link")
    print(f"{'documents':<12}{'':>10}   wrong  found   wrong  found")
    for name, draw in DATA.items():
        for documents in (50, 100, 300):
            found[f"{name} {documents}"] = cells = measured(draw, documents, options.draws)
            print(f"{name:<12}{documents:>10}  " + "".join(f"{cell:>7}" for cell in cells), flush=True)
    print_figures(options, found)


if __name__ == "__main__":
    main()
