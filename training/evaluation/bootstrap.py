"""Intervals of means and medians over documents, by resampling documents (percentile bootstrap, seeded)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.streams import stream

Values = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
RESAMPLES = 10_000
MEDIAN_RESAMPLES = 2_000
LEVEL = 0.95
NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean (or a median) and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate minus champion on the same documents: mean difference with interval, and the probability it is >= 0."""

    difference: Interval
    probability_at_least: float


def mean_interval(values: Values, *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL) -> Interval:
    """Return the mean of per-document values with its percentile bootstrap interval.

    Raises:
        ValueError: there is no value.
    """
    return _interval(values, _resampled_means(values, seed, resamples), level)


def pooled_interval(
    sums: Values, counts: Values, *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval:
    """Return the mean over all items of all documents, its interval from resampling whole documents.

    Args:
        sums: sum of a document's values.
        counts: how many values it has, at least one each.
        seed: of the samples.
        resamples: number of samples.
        level: of the interval.

    Raises:
        ValueError: there is no document.
    """
    above, below = (_resampled_means(values, seed, resamples) for values in (sums, counts))
    tail = (1 - level) / 2
    low, high = np.quantile(above / below, [tail, 1 - tail])
    return Interval(float(np.sum(sums) / np.sum(counts)), float(low), float(high))


def median_interval(
    values: Values,
    groups: npt.NDArray[np.integer[Any]],
    *,
    seed: int = 0,
    resamples: int = MEDIAN_RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """Return the median of all items of all documents as `mean`, its interval from resampling whole documents.

    Args:
        values: Q values.
        groups: Q numbers of the documents they are of.
        seed: of the samples.
        resamples: number of samples.
        level: of the interval.

    Raises:
        ValueError: there is no value.
    """
    if values.shape != groups.shape or not len(values):
        raise ValueError(f"expected values with a document each, found {values.shape} and {groups.shape}")
    order = np.argsort(values, kind="stable")
    sorted_values = np.asarray(values, np.float64)[order]
    numbers, places = np.unique(groups[order], return_inverse=True)
    medians = [
        _median(sorted_values, np.bincount(row, minlength=len(numbers))[places])
        for rows in _samples(len(numbers), seed, resamples)
        for row in rows
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(np.median(sorted_values)), float(low), float(high))


def compare(
    candidate: Values, champion: Values, *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> Comparison:
    """Return how two models differ, from their values on the same documents in the same order (paired bootstrap).

    Raises:
        ValueError: there is no value, or the numbers of documents differ.
    """
    if candidate.shape != champion.shape:
        raise ValueError(f"expected values of the same documents, found {candidate.shape} and {champion.shape}")
    differences = np.asarray(candidate, np.float64) - np.asarray(champion, np.float64)
    means = _resampled_means(differences, seed, resamples)
    return Comparison(_interval(differences, means, level), float((means >= 0).mean()))


def _median(sorted_values: Float64, times: npt.NDArray[np.int64]) -> float:
    """Return the median of ascending values, each taken so many times."""
    reached = np.cumsum(times)
    middle = [
        int(np.searchsorted(reached, place, side="right")) for place in ((reached[-1] - 1) // 2, reached[-1] // 2)
    ]
    return float(sorted_values[middle].mean())


def _interval(values: Values, means: Float64, level: float) -> Interval:
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))


def _resampled_means(values: Values, seed: int, resamples: int) -> Float64:
    """Return the means of `resamples` samples of the documents, drawn with replacement."""
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected one value a document, found shape {values.shape}")
    numbers = np.asarray(values, dtype=np.float64)
    return np.concatenate([numbers[rows].mean(axis=1) for rows in _samples(len(numbers), seed, resamples)])


def _samples(count: int, seed: int, resamples: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield blocks of samples (rows of document numbers), small enough for memory whatever the count."""
    numbers = stream("bootstrap", seed)
    block = max(1, NUMBERS_AT_ONCE // count)
    for start in range(0, resamples, block):
        yield numbers.integers(count, size=(min(block, resamples - start), count))
