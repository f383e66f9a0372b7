"""What is measured: scores, and intervals of their means that hold however few documents there are.

One bound is used everywhere: that of Gaffke (2005; Learned-Miller and Thomas 2019). The sample gets one more document,
which has the worst score that there can be for the lower end and the best for the upper, and each document an
exponential weight; an end of the interval is a quantile of the weighted mean. No distribution of scores is known for
which it misses the mean more often than it may, whatever the number of documents, and `benchmarks/gate.py` looks for
one. For many documents it is that of the bootstrap. The bootstrap itself has no width for one document, and Student's
interval misses where scores are skewed.

A `Score` is a row of the table of an evaluation, `evaluation.parquet` beside the report and in the MLflow run of the
model: every number that was measured, so that two models can be compared years later.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import scipy  # its `optimize` is imported at its first use, a quarter of a second
from scipy.special import ndtri

from schemas.tables import column, table_schema
from training.data.ragged import Float64, Floats, Int64
from training.parts import LEVEL


@dataclass(frozen=True, slots=True)
class Score:
    """One measured number.

    Attributes:
        metric: which number it is.
        value: the number; None where it cannot be computed.
        low: lower end of its 95% interval, where there is one.
        high: upper end.
        n: documents, queries, pairs or links behind it.
        group: what it is restricted to (`language=en`, `text to image, 10 samples of 500`); empty: everything.
        measure: what was measured: links, pairs, document, random, another baseline, retrieval, relations, refined
            retrieval, position, analysis, calibration.
        deviation: standard deviation over samples.
        unit: of value, low, high and deviation.
        note: what else a reader must know.
    """

    metric: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    group: str = ""
    measure: str = ""
    deviation: float | None = None
    unit: str = "percent"
    note: str = ""


EVALUATION_SCHEMA = table_schema(
    "evaluation",
    1,
    [
        column("model", pa.string(), "registered name, or the address it was loaded from"),
        column("model_version", pa.string(), "registered version, where there is one", nullable=True),
        column("dataset", pa.string(), "data set it was evaluated on"),
        column("dataset_version", pa.string(), "version of the data set"),
        column("split", pa.string(), "train, val or test"),
        column("measure", pa.string(), "what was measured: links, document, random, retrieval, ..."),
        column("metric", pa.string(), "which number of it"),
        column("group", pa.string(), "what it is restricted to; empty: everything"),
        column("value", pa.float64(), "the number; null where it cannot be computed", nullable=True),
        column("low", pa.float64(), "lower end of its 95% interval", nullable=True),
        column("high", pa.float64(), "upper end of its 95% interval", nullable=True),
        column("deviation", pa.float64(), "standard deviation over samples", nullable=True),
        column("n", pa.int64(), "documents, queries, pairs or links behind it"),
        column("unit", pa.string(), "of value, low, high and deviation"),
        column("note", pa.string(), "what else a reader must know; mostly empty"),
    ],
)


MOST = 100.0  # every score is from 0 to this, and a difference of two from minus this
MANY_DOCUMENTS = 100_000  # beyond, the document that was added hardly counts
POWER = 0.8
FACTORS_AT_ONCE = 64  # complex factors, whose product stays finite
_STEP = 1 / 16
_GRID = np.arange(0, 10, _STEP).reshape(-1, 16)
_NODES, _WEIGHTS = np.sinh(_GRID), _STEP * np.cosh(_GRID) * np.where(_GRID == 0, 0.5, 1.0)
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean (or a median, or a mean of differences) and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    def score(self, metric: str, *, n: int, group: str = "", measure: str = "", unit: str = "percent") -> Score:
        """Return it as a row of an evaluation."""
        return Score(metric, self.mean, self.low, self.high, n, group, measure, unit=unit)


def mean_interval(
    values: Floats, units: Int64 | None = None, *, least: float = 0.0, most: float = MOST, level: float = LEVEL
) -> Interval:
    """Return the mean of values from `least` to `most` with an interval; of no value it has the whole range.

    Args:
        values: Q values.
        units: of each the number of what was drawn independently, such as its document; None: each is one. A unit that
            was not seen is taken to have no more values than the largest that was.
        least: that a value can be.
        most: likewise.
        level: share of samples whose interval holds the mean.
    """
    numbers = np.asarray(values, np.float64)
    if not len(numbers):
        return Interval((least + most) / 2, least, most)
    rows = np.arange(len(numbers)) if units is None else np.unique(units, return_inverse=True)[1]
    sums, counts = np.bincount(rows, weights=numbers), np.bincount(rows).astype(np.float64)
    tail, mean = (1 - level) / 2, float(numbers.mean())
    low = least + _lower_end(sums - least * counts, counts, tail)
    return Interval(mean, low, most - _lower_end(most * counts - sums, counts, tail))


def median_interval(values: Floats, units: Int64, *, least: float, most: float) -> Interval:
    """Return the median of values from `least` to `most` as `mean`, with the interval of values that may be the median.

    A value may be the median where the interval of the share of values up to it holds a half; units as in
    `mean_interval`.

    >>> median_interval(np.arange(1.0, 101), np.arange(100), least=1, most=500)
    Interval(mean=50.5, low=40.0, high=61.0)
    """
    levels = np.unique(values).tolist()

    def end(name: str, outside: float) -> float:
        index = bisect_left(
            levels, 50, key=lambda level: getattr(mean_interval(100.0 * (values <= level), units), name)
        )
        return levels[index] if index < len(levels) else outside

    none = mean_interval(np.zeros(len(values)), units)
    return Interval(float(np.median(values)), least if none.high >= 50 else end("high", most), end("low", most))


def difference_interval(differences: Floats, *, level: float = LEVEL) -> Interval:
    """Return the mean of per-document differences of two scores, with its interval; of none it has the whole range."""
    return mean_interval(differences, least=-MOST, level=level)


def probability_below(mean: float, sums: Float64, counts: Float64) -> float:
    """Return the smallest error at which the lower bound of a mean is at least `mean`.

    Args:
        mean: 0 or more.
        sums: U sums of values, 0 or more.
        counts: U numbers of values.
    """
    return sum_at_most_zero(np.append(sums - mean * counts, -mean * counts.max()))


def sum_at_most_zero(c: Float64) -> float:
    """Return the probability that the sum of some numbers, each times an exponential one, is at most 0.

    It is the integral of exp(-sum of log(1 + z c)) / z over the vertical line through the saddle point, here in steps
    that grow exponentially: four digits are right at least.
    """
    if c.min() >= 0:
        return 0.0
    if c.max() <= 0:
        return 1.0
    c = c / -c.min()
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        is_left = (c / (1 + middle * c)).sum() + 1 / middle > 0
        low, high = (middle, high) if is_left else (low, middle)
    saddle = (low + high) / 2
    slopes = c / (1 + saddle * c)
    width = ((slopes**2).sum() + saddle**-2) ** -0.5
    slopes = np.append(slopes, np.zeros(-len(slopes) % FACTORS_AT_ONCE)).reshape(-1, FACTORS_AT_ONCE)
    highest, integral = np.log1p(saddle * c).sum(), 0.0
    for nodes, weights in zip(_NODES, _WEIGHTS, strict=True):
        away = 1j * width * nodes
        products = (1 + away[:, None, None] * slopes).prod(axis=2)
        heights = np.exp(-highest - np.log(products).sum(axis=1)) / (saddle + away)
        integral += float((heights.real * weights).sum())
        if abs(heights[-1]) * weights[-1] < _NEGLIGIBLE * integral:
            break
    return float(integral * width / np.pi)


def _lower_end(sums: Float64, counts: Float64, tail: float) -> float:
    """Return the lower bound of a mean of values of 0 or more; U sums, and of how many values."""
    mean = float(sums.sum() / counts.sum())
    if mean <= 0:
        return 0.0

    def excess(bound: float) -> float:
        return float(np.log(max(probability_below(bound, sums, counts), 1e-300) / tail))

    step = 4 * float(np.std(sums - mean * counts)) * len(sums) ** 0.5 / counts.sum() + 4 * mean / len(sums)
    start = mean - step
    while start > 0 and excess(start) > 0:
        start -= step
    return float(scipy.optimize.brentq(excess, max(start, 0.0), mean, xtol=1e-9 * MOST))


def level_of(level: float, attempt: int) -> float:
    """Return the level at which a champion's k-th candidate is compared with it: half of a k-th of the error is left.

    One bound decides, and beyond it lies half of the error. With a level of 95% it is 1.25% / k, which adds up to 5%
    over 30 candidates, whatever they are.
    """
    return 1 - (1 - level) / (2 * attempt)


def documents_needed(differences: Floats, margin: float, *, level: float = LEVEL) -> int:
    """Return of how many documents a model as good as another is shown to be within the margin, in four of five cases.

    Differences of further documents are taken to be like those at hand. It is 0 where there are fewer than two, or the
    margin is none: a model that is as good is never shown to be better.
    """
    if len(differences) < 2 or margin <= 0:
        return 0
    tail, centred = (1 - level) / 2, np.asarray(differences, np.float64) - np.mean(differences)
    spread = float(centred.std(ddof=1))
    usual, fewest = ((ndtri(POWER) - ndtri(tail)) * spread / margin) ** 2, fewest_documents(margin, level=level)
    if max(usual, fewest) > MANY_DOCUMENTS:
        return int(max(usual, fewest))

    def is_shown(count: int) -> bool:
        sample = np.resize(centred, count) - ndtri(POWER) * spread / count**0.5
        return probability_below(MOST - margin, np.maximum(sample + MOST, 0.0), np.ones(count)) <= tail

    low, high = 0, fewest
    while not is_shown(high):
        low, high = high, 2 * high
    while high - low > max(1, high // 500):
        middle = (low + high) // 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def fewest_documents(margin: float, *, level: float = LEVEL) -> int:
    """Return of how many documents without any difference a model is shown to be within a margin of up to 100.

    It is 0 where the margin is none: no number shows that.
    """
    if margin <= 0:
        return 0
    tail = (1 - level) / 2
    return 1 if margin >= MOST else int(np.ceil(np.log(tail) / np.log1p(-margin / MOST)))
