"""Precision, recall and AUC of a corpus's links from a few labelled images and the model's scores of all of them.

Images are drawn at random within strata of the model's scores, linked ones and those without a link. What the labels
say is corrected by the scores, which are known of every image: with y the label and f the score,

    mean of y  =  sum over strata h of share_h * (b * mean of f over all of h + mean of y - b f over its labelled ones)

(prediction-powered inference with a fitted b; Angelopoulos et al. 2023, arXiv:2311.01453, with strata as in Fisch et
al. 2024; surveys know it as the regression estimator, Cochran 1977, section 7). Whatever the scores are worth, the
second term corrects the first: a bad model makes the interval wide, not wrong. Intervals of shares are Clopper and
Pearson's with the number of labels that would have this variance under plain sampling (Korn and Graubard 1998).
`benchmarks/labelled.py` simulates how often they hold.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, expit, logit, stdtrit

from training.data.ragged import Bool, Float64, Int64
from training.metrics.intervals import Interval
from training.parts import LEVEL

UNSEEN = 0.5  # labels of each kind that are added to a stratum's before its variance is taken
FEWEST = 3.0  # labels that an interval counts on at least; more labels than any other interval needs are not promised
KEPT = (1.0, 0.75, 0.5, 0.25)  # shares of the links that thresholds keep
MOST_FACTOR = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Every image of a corpus as the model scored it.

    Attributes:
        strata: N numbers from 0, of images that are drawn alike.
        is_linked: N; whether the model links the image.
        scores: N; of its link, larger for surer ones; any number where there is none.
    """

    strata: Int64
    is_linked: Bool
    scores: Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What people say of some images.

    Attributes:
        rows: n rows of the population, each once.
        is_right: n; whether the image has a link and it is right.
        has_text: n; whether some sentence of its document goes with the image.
    """

    rows: Int64
    is_right: Bool
    has_text: Bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measure of the whole corpus.

    Attributes:
        interval: estimate and 95% bounds, 0 to 1.
        more: labels beside those at hand that would halve the interval, about.
    """

    interval: Interval
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusMeasures:
    """Of the links of a corpus.

    Attributes:
        precision: share of the links that is right; None: no link is labelled.
        recall: of the images that some sentence goes with, the share whose link is right; None: no such image is
            labelled, or none of some stratum.
        auc: probability that a right link has a higher score than a wrong one; None: all are right, or none is, or no
            link of some stratum is labelled.
    """

    precision: Measured | None
    recall: Measured | None
    auc: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A score whose links are shown to have a wanted precision, and the share of all links that reach it."""

    score: float
    kept: float
    precision: Interval


def strata_of(is_linked: Bool, scores: Float64, parts: int) -> Int64:
    """Return the stratum of each image: 0 without a link, then links by rising scores in equally large parts.

    >>> strata_of(np.array([True, False, True]), np.array([0.9, 0.0, 0.2]), parts=2).tolist()
    [2, 0, 1]
    """
    strata = np.zeros(len(scores), np.int64)
    linked = np.flatnonzero(is_linked)
    order = linked[np.argsort(scores[linked], kind="stable")]
    strata[order] = 1 + np.arange(len(order)) * parts // max(1, len(order))
    return strata


def drawn(strata: Int64, count: int, draws: np.random.Generator) -> Int64:
    """Return rows drawn at random: as many of each stratum, as far as it has them; in random order.

    >>> sorted(drawn(np.array([0, 0, 0, 1, 1]), 5, np.random.default_rng(0)).tolist())
    [0, 1, 2, 3, 4]
    """
    free = {number: draws.permutation(np.flatnonzero(strata == number)) for number in np.unique(strata).tolist()}
    parts: list[Int64] = []
    while free and count > 0:
        share = max(1, count // len(free))
        for number in list(free)[: count if share == 1 else None]:
            parts.append(free[number][:share])
            count -= len(parts[-1])
            free[number] = free[number][share:]
        free = {number: rows for number, rows in free.items() if len(rows)}
    return draws.permutation(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def measure(population: Population, labels: Labels, *, level: float = LEVEL) -> CorpusMeasures:
    """Return precision, recall and AUC of the corpus's links.

    >>> scores, linked = np.arange(100) / 100, np.ones(100, bool)
    >>> population = Population(strata=np.zeros(100, np.int64), is_linked=linked, scores=scores)
    >>> labels = Labels(rows=np.arange(0, 100, 10), is_right=np.ones(10, bool), has_text=np.ones(10, bool))
    >>> found = measure(population, labels)
    >>> found.precision.interval.mean
    1.0
    """
    recall = None
    if labels.has_text.any() and not _unlabelled(population, labels):
        recall = _share(population, labels, labels.has_text, level=level)
    return CorpusMeasures(
        precision=_precision(population, labels, population.is_linked, level=level),
        recall=recall,
        auc=_auc(*_among(population, labels, population.is_linked), level=level),
    )


def threshold_for(
    population: Population, labels: Labels, wanted: float, *, error: float = 1 - LEVEL
) -> Threshold | None:
    """Return the lowest of four thresholds whose links are shown to have a precision; None: none is.

    The thresholds keep all links, three quarters, half and a quarter of them; each has its share of the error.

    >>> linked = np.ones(1000, bool)
    >>> everyone = Population(strata=np.zeros(1000, np.int64), is_linked=linked, scores=np.arange(1000.0))
    >>> labels = Labels(rows=np.arange(0, 1000, 2), is_right=linked[::2], has_text=linked[::2])
    >>> threshold_for(everyone, labels, wanted=0.9).kept
    1.0
    """
    scores = population.scores[population.is_linked]
    for kept in KEPT if len(scores) else ():
        score = float(np.quantile(scores, 1 - kept, method="lower"))
        is_kept = population.is_linked & (population.scores >= score)
        precision = _precision(population, labels, is_kept, level=1 - 2 * error / len(KEPT))
        if precision is not None and precision.interval.low >= wanted:
            return Threshold(score=score, kept=float(is_kept.sum() / len(scores)), precision=precision.interval)
    return None


def agreement(first: Sequence[str], second: Sequence[str]) -> tuple[float, float]:
    """Return the share of answers that two people give alike, and Cohen's kappa: 1 alike, 0 as by chance.

    Raises:
        ValueError: there is no answer.

    >>> agreement(["yes", "no", "yes", "no"], ["yes", "no", "no", "no"])
    (0.75, 0.5)
    """
    alike = float(np.mean([a == b for a, b in zip(first, second, strict=True)]))
    counts, others = Counter(first), Counter(second)
    by_chance = sum(counts[name] * others[name] for name in counts) / len(first) ** 2
    return alike, 1.0 if by_chance == 1 else (alike - by_chance) / (1 - by_chance)


def _precision(population: Population, labels: Labels, are_of: Bool, *, level: float) -> Measured | None:
    """Return the share of some links that is right, None where none of them is labelled.

    Strata without a label have their whole range: none of their links is right, or each is.
    """
    among, subset = _among(population, labels, are_of)
    if not len(subset.rows):
        return None
    share, unknown = _share(among, subset, np.ones(len(subset.rows), bool), level=level), _unlabelled(among, subset)
    interval = share.interval
    bounds = interval.low * (1 - unknown), interval.high * (1 - unknown) + unknown
    more = min(
        int(np.ceil(share.more * len(labels.rows) / len(subset.rows))), len(population.strata) - len(labels.rows)
    )
    return Measured(interval=Interval(interval.mean, *bounds), more=more)


def _among(population: Population, labels: Labels, are_of: Bool) -> tuple[Population, Labels]:
    """Return some of the images as a population of their own, with their labels."""
    kept, every = are_of[labels.rows], population
    rows = (np.cumsum(are_of) - 1)[labels.rows[kept]]
    return (
        Population(strata=every.strata[are_of], is_linked=every.is_linked[are_of], scores=every.scores[are_of]),
        Labels(rows=rows, is_right=labels.is_right[kept], has_text=labels.has_text[kept]),
    )


def _unlabelled(population: Population, labels: Labels) -> float:
    """Return the share of the images that are in strata without a label."""
    sizes, counts = _sizes(population, labels)
    return float(sizes[counts == 0].sum() / sizes.sum())


def _share(population: Population, labels: Labels, whole: Bool, *, level: float) -> Measured:
    """Return the interval of right links / sum of whole, over all images of the strata that have labels.

    Args:
        population: of N images.
        labels: of n of them.
        whole: n; whether an image counts; each right link does.
    """
    counted = whole.astype(np.float64)
    top, bottom = (_Estimate.of(population, labels, each.astype(np.float64)) for each in (labels.is_right, whole))
    total = bottom.mean
    share = min(max(top.mean / total, 0.0), 1.0) if total > 0 else 0.0
    residuals = top.residuals - share * bottom.residuals
    error = (
        _variance(population, labels, residuals, (-share * counted, counted - share * counted)) / max(total, 1e-12) ** 2
    )
    if error == 0:  # every image is labelled
        return Measured(interval=Interval(share, share, share), more=0)
    labelled = int(counted.sum())
    worth = max(share * (1 - share), 1 / (4 * labelled)) / error
    worth *= (
        stdtrit(max(labelled - 1, 1), 0.975) / stdtrit(max(labelled - len(np.unique(population.strata)), 1), 0.975)
    ) ** 2
    worth = max(worth, min(FEWEST, labelled))
    low, high = clopper_pearson(share, worth, level)
    more = int(np.ceil((_factor(share, worth, level) - 1) * len(labels.rows)))
    return Measured(interval=Interval(share, low, high), more=min(more, len(population.strata) - len(labels.rows)))


@dataclass(frozen=True, slots=True)
class _Estimate:
    """The mean of a label over all images, and what the scores leave unexplained of the labelled ones."""

    mean: float
    residuals: Float64

    @classmethod
    def of(cls, population: Population, labels: Labels, values: Float64) -> "_Estimate":
        scores = np.where(population.is_linked, population.scores, 0.0)
        strata, (sizes, counts) = population.strata[labels.rows], _sizes(population, labels)
        centred = scores[labels.rows] - _means(scores[labels.rows], strata, counts)[strata]
        weights = (sizes**2 / np.maximum(counts, 1) ** 2)[strata]
        spread = float((weights * centred**2).sum())
        slope = float((weights * centred * values).sum()) / spread if spread > 0 else 0.0
        residuals = values - slope * scores[labels.rows]
        everywhere = np.bincount(population.strata, scores, len(sizes)) / np.maximum(sizes, 1)
        means = slope * everywhere + _means(residuals, strata, counts)
        return cls(float((sizes * means)[counts > 0].sum() / sizes[counts > 0].sum()), residuals)


def _sizes(population: Population, labels: Labels) -> tuple[Float64, Float64]:
    """Return how many images each stratum has, and how many of them are labelled."""
    count = int(population.strata.max()) + 1
    every, labelled = population.strata, population.strata[labels.rows]
    return np.bincount(every, minlength=count).astype(np.float64), np.bincount(labelled, minlength=count).astype(
        np.float64
    )


def _means(values: Float64, strata: Int64, counts: Float64) -> Float64:
    return np.bincount(strata, values, len(counts)) / np.maximum(counts, 1)


def _variance(population: Population, labels: Labels, residuals: Float64, extremes: tuple[Float64, Float64]) -> float:
    """Return the variance of the mean of residuals over strata, each with half a label more of either kind."""
    strata, (sizes, counts) = population.strata[labels.rows], _sizes(population, labels)
    means = _means(residuals, strata, counts)
    squares = _means((residuals - means[strata]) ** 2, strata, counts) * counts
    low, high = (_means(each, strata, counts) for each in extremes)
    spread = (squares + UNSEEN / 2 * (high - low) ** 2) / np.maximum(counts + 2 * UNSEEN - 1, 1)
    shares = sizes / sizes[counts > 0].sum()
    left = 1 - counts / np.maximum(sizes, 1)
    return float((shares**2 * spread / np.maximum(counts, 1) * left)[counts > 0].sum())


def clopper_pearson(share: float, worth: float, level: float) -> tuple[float, float]:
    """Return the bounds of a share that was found among so many labels; their number need not be whole.

    >>> low, high = clopper_pearson(0.9, worth=10, level=0.95)
    >>> f"{low:.3f} {high:.3f}"
    '0.555 0.997'
    """
    successes, tail = share * worth, (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, worth - successes + 1, tail))
    return low, 1.0 if successes >= worth else float(betaincinv(successes + 1, worth - successes, 1 - tail))


def _factor(share: float, worth: float, level: float) -> float:
    """Return by how much more labels are worth whose interval is half as wide."""

    def width(factor: float) -> float:
        low, high = clopper_pearson(share, worth * factor, level)
        return high - low

    return _smallest(lambda factor: width(factor) <= width(1) / 2)


def _smallest(is_enough: Callable[[float], bool]) -> float:
    low, high = 1.0, 2.0
    while not is_enough(high) and high < MOST_FACTOR:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _auc(population: Population, labels: Labels, *, level: float) -> Interval | None:
    """Return how often a right link scores above a wrong one, its interval from placements (DeLong 1988)."""
    rows, is_right = labels.rows, labels.is_right
    if is_right.all() or not is_right.any() or _unlabelled(population, labels):
        return None
    sizes, counts = _sizes(population, labels)
    weights = (sizes / np.maximum(counts, 1))[population.strata[rows]]
    scores = population.scores[rows]
    above = (scores[:, None] > scores[None]) + 0.5 * (scores[:, None] == scores[None])
    right, wrong = weights * is_right, weights * ~is_right
    auc = float(right @ above @ wrong / (right.sum() * wrong.sum()))
    placed = np.where(is_right, above @ wrong / wrong.sum() - auc, 0.0) / right.sum()
    placed += np.where(is_right, 0.0, right @ above / right.sum() - auc) / wrong.sum()
    fewer = min(int(is_right.sum()), int((~is_right).sum()))
    error = float(np.sqrt(((weights * placed) ** 2).sum() * (fewer + 1) / fewer))
    smoothed = (auc * fewer + 0.5) / (fewer + 1)
    half = stdtrit(max(fewer, 1), (1 + level) / 2) * max(error, 0.5 / len(rows)) / (smoothed * (1 - smoothed))
    low, high = expit(logit(smoothed) - half), expit(logit(smoothed) + half)
    return Interval(auc, min(auc, float(low)), max(auc, float(high)))
