"""Intervals of means of per-document scores that are sound however few documents there are, and what they can show."""

from collections.abc import Iterator

import numpy as np
from scipy.special import stdtrit

from training.data.ragged import Float64
from training.data.streams import stream
from training.metrics.bootstrap import Interval
from training.metrics.scores import LEVEL

BEST = 100.0  # every score is from 0 to this
RESAMPLES = 10_000
NUMBERS_AT_ONCE = 1 << 22
POWER_QUANTILE = 0.8416  # of the normal distribution at 80%
MOST_DOCUMENTS = 1_000_000_000
HARDLY = 1.0  # points, by which two models' scores of a document hardly differ


def mean_interval(scores: Float64, *, level: float = LEVEL) -> Interval:
    """Return the mean of per-document scores from 0 to 100, with an interval that is sound however few they are."""
    low, high = mean_bounds(np.asarray(scores)[:, None], level=level)
    return Interval(float(np.mean(scores)), float(low[0]), float(high[0]))


def mean_bounds(scores: Float64, *, level: float = LEVEL) -> tuple[Float64, Float64]:
    """Return lower and upper bounds of k means from n x k scores, each 0 to 100; a row is a document.

    A Bayesian bootstrap with one document more, which has the worst score for the lower bound and the best for the
    upper (Gaffke 2005; Learned-Miller and Thomas 2019). No distribution of scores is known for which such a bound
    misses the mean more often than it may, whatever n; for many documents it is that of the bootstrap. The percentile
    bootstrap alone has no width for one document, and Student's interval misses where scores are skewed.
    """
    lows, spare = [], []
    for weights in document_weights("gate", len(scores), RESAMPLES):
        lows.append(weights[:, 1:] @ scores)
        spare.append(weights[:, :1] * BEST)
    means, tail = np.concatenate(lows), (1 - level) / 2
    low = np.quantile(means, tail, axis=0)
    return low, np.quantile(means + np.concatenate(spare), 1 - tail, axis=0)


def document_weights(name: str, documents: int, resamples: int) -> Iterator[Float64]:
    """Yield R x (1 + documents) weights of a Bayesian bootstrap, rows at once; column 0 is of one more document."""
    draws, count = stream(name, 0), documents + 1
    block = max(1, NUMBERS_AT_ONCE // count)
    for start in range(0, resamples, block):
        weights = draws.standard_exponential((min(block, resamples - start), count))
        yield weights / weights.sum(axis=1, keepdims=True)


def difference_interval(differences: Float64, *, level: float = LEVEL) -> Interval:
    """Return the mean of per-document differences from -100 to 100, with an interval; of fewer than two it has no end.

    It is Student's, but where more than half of the documents hardly differ. Then few documents decide the mean, a
    further one may lose everything, and none of that shows in the spread of those at hand. The interval is then that of
    `mean_bounds`, which holds for any differences.
    """
    count = len(differences)
    if count < 2:
        return Interval(float(differences.sum()), -BEST, BEST)
    mean = float(differences.mean())
    if is_sparse(differences):
        low, high = mean_bounds((differences[:, None] + BEST) / 2, level=level)
        return Interval(mean, 2 * float(low[0]) - BEST, 2 * float(high[0]) - BEST)
    half = float(stdtrit(count - 1, (1 + level) / 2) * differences.std(ddof=1)) / count**0.5
    return Interval(mean, mean - half, mean + half)


def is_sparse(differences: Float64) -> bool:
    """Return whether more than half of the documents hardly differ."""
    return bool((np.abs(differences) <= HARDLY).mean() > 0.5)


def level_of(level: float, attempt: int) -> float:
    """Return the level at which a champion's k-th candidate is compared with it: half of a k-th of the error is left.

    One bound decides, and beyond it lies half of the error. With a level of 95% it is 1.25% / k, which adds up to 5%
    over 30 candidates, whatever they are.
    """
    return 1 - (1 - level) / (2 * attempt)


def documents_needed(differences: Float64, margin: float, *, level: float = LEVEL) -> int:
    """Return of how many documents a model as good as another is shown to be within the margin, in four of five cases.

    Differences of further documents are taken to spread as those at hand do; 0 where fewer than two are there, or the
    margin is none (a model that is as good is never shown to be better). Where most documents hardly differ, they are
    enough to have seen one of any share of documents that could cost the margin.
    """
    if len(differences) < 2 or not margin:
        return 0
    spread, count = float(differences.std(ddof=1)), 2
    if is_sparse(differences) and margin < BEST:
        count = max(2, int(np.ceil(np.log((1 - level) / 2) / np.log1p(-margin / BEST))))
    while count < MOST_DOCUMENTS:
        wanted = ((float(stdtrit(count - 1, (1 + level) / 2)) + POWER_QUANTILE) * spread / margin) ** 2
        if count >= wanted:
            return count
        count = max(count + 1, min(int(wanted), 2 * count))
    return count
