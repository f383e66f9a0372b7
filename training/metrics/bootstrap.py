"""Intervals of means and medians over documents, by resampling documents (percentile bootstrap, seeded)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.data.ragged import Float64, Floats, Int64
from training.data.streams import stream
from training.metrics.scores import LEVEL, Score

RESAMPLES = 10_000
MEDIAN_RESAMPLES = 2_000
NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean (or a median, or a difference of means) and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    def score(self, metric: str, *, n: int, group: str = "", measure: str = "", unit: str = "percent") -> Score:
        """Return it as a row of an evaluation."""
        return Score(metric, self.mean, self.low, self.high, n, group, measure, unit=unit)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate minus champion on the same documents: mean difference with interval, and the probability it is >= 0."""

    difference: Interval
    probability_at_least: float


def mean_interval(values: Floats) -> Interval:
    """Return the mean of per-document values with its percentile bootstrap interval.

    Raises:
        ValueError: there is no value.

    >>> mean_interval(np.array([50.0, 60.0, 70.0])).mean
    60.0
    """
    means = _resampled_means(values)
    return _interval(float(np.mean(values)), means)


def pooled_interval(values: Floats, documents: Int64) -> Interval:
    """Return the mean over all items of all documents, its interval from resampling whole documents.

    Args:
        values: Q values.
        documents: Q numbers of the documents they are of.

    Raises:
        ValueError: there is no value.

    >>> pooled_interval(np.array([1.0, 1.0, 4.0]), np.array([0, 0, 1])).mean
    2.0
    """
    _, rows = np.unique(documents, return_inverse=True)
    sums, counts = (np.bincount(rows, weights=each).astype(np.float64) for each in (values, None))
    means = _resampled_means(sums) / _resampled_means(counts)
    return _interval(float(np.sum(sums) / np.sum(counts)), means)


def median_interval(values: Floats, groups: Int64) -> Interval:
    """Return the median of all items of all documents as `mean`, its interval from resampling whole documents.

    Args:
        values: Q values.
        groups: Q numbers of the documents they are of.

    Raises:
        ValueError: there is no value.

    >>> median_interval(np.array([1.0, 3.0, 7.0]), np.array([0, 0, 1])).mean
    3.0
    """
    if values.shape != groups.shape or not len(values):
        raise ValueError(f"expected values with a document each, found {values.shape} and {groups.shape}")
    order = np.argsort(values, kind="stable")
    sorted_values = np.asarray(values, np.float64)[order]
    numbers, rows = np.unique(groups[order], return_inverse=True)
    medians = [
        _median(sorted_values, np.bincount(sample, minlength=len(numbers))[rows])
        for block in _samples(len(numbers), MEDIAN_RESAMPLES)
        for sample in block
    ]
    return _interval(float(np.median(sorted_values)), np.array(medians))


def compare(candidate: Floats, champion: Floats) -> Comparison:
    """Return how two models differ, from their values on the same documents in the same order (paired bootstrap).

    Raises:
        ValueError: there is no value, or the numbers of documents differ.

    >>> found = compare(np.array([60.0, 70.0]), np.array([50.0, 65.0]))
    >>> found.difference.mean, found.probability_at_least
    (7.5, 1.0)
    """
    if candidate.shape != champion.shape:
        raise ValueError(f"expected values of the same documents, found {candidate.shape} and {champion.shape}")
    differences = np.asarray(candidate, np.float64) - np.asarray(champion, np.float64)
    means = _resampled_means(differences)
    return Comparison(_interval(float(differences.mean()), means), float((means >= 0).mean()))


def _median(sorted_values: Float64, times: Int64) -> float:
    """Return the median of ascending values, each taken so many times."""
    reached = np.cumsum(times)
    middle = np.searchsorted(reached, [(reached[-1] - 1) // 2, reached[-1] // 2], side="right")
    return float(sorted_values[middle].mean())


def _interval(value: float, samples: Float64) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def _resampled_means(values: Floats) -> Float64:
    """Return the means of samples of the documents, drawn with replacement."""
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected one value a document, found shape {values.shape}")
    numbers = np.asarray(values, dtype=np.float64)
    return np.concatenate([numbers[block].mean(axis=1) for block in _samples(len(numbers), RESAMPLES)])


def _samples(count: int, resamples: int) -> Iterator[Int64]:
    """Yield blocks of samples (rows of document numbers), small enough for memory whatever the count."""
    numbers = stream("bootstrap", 0)
    block = max(1, NUMBERS_AT_ONCE // count)
    for start in range(0, resamples, block):
        yield numbers.integers(count, size=(min(block, resamples - start), count))
