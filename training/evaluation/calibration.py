"""Fitting a calibration to validation links, and judging it on others: reliability, Brier score, kept precision.

Every predicted link of a document with known links, some pair of which is no link, is one observation: its similarity,
and whether it is true. What a calibration is, and how it is used, is in `training.linking.calibration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from training.evaluation.bootstrap import Interval, pooled_interval
from training.evaluation.links import link_mask
from training.linking.calibration import Calibration, Method, PrecisionPoint
from training.linking.links import predicted_links

Matrix = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
ENOUGH_FOR_ISOTONIC = 1_000  # below it a sigmoid is the better fit (Niculescu-Mizil and Caruana 2005)
CONFIDENCE = 0.95  # that links above a threshold are as precise as is said
FEWEST_KEPT = 20
KEPT_RATIO = 1.25  # of the links that two thresholds in a row keep
RELIABILITY_BINS = 10
WANTED_PRECISIONS = (0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Predicted links of documents whose links are known.

    Attributes:
        similarities: E cosines.
        are_true: E.
        documents: E document numbers.
        document_count: documents with known links and an unlinked pair, those without a prediction among them.
    """

    similarities: Float64
    are_true: Bool
    documents: Int64
    document_count: int

    def __len__(self) -> int:
        return len(self.similarities)


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Links of about equal probability: their mean probability, the share that is true, how many there are."""

    probability: float
    share: float
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLinks:
    """What is kept at a threshold chosen on validation for a wanted precision.

    Attributes:
        wanted: precision, 0 to 1.
        threshold: similarity; None where no threshold reached it.
        precision: of the judged split's links at that threshold, percent; None where none is kept.
        kept: links kept, percent.
        links: number of them.
    """

    wanted: float
    threshold: float | None
    precision: Interval | None
    kept: float
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationJudgement:
    """How a calibration does on links it was not fitted to.

    Attributes:
        calibration: what was fitted.
        links: predicted links it was judged on.
        bins: reliability, from improbable to probable.
        brier: mean squared difference of probability and truth; 0 is best.
        error: expected calibration error over the bins, in points of percent.
        kept: for each wanted precision.
    """

    calibration: Calibration
    links: int
    bins: tuple[ReliabilityBin, ...]
    brier: float
    error: float
    kept: tuple[KeptLinks, ...]


def observe(matrices: Sequence[Matrix], links: Sequence[Int64 | None]) -> Observations:
    """Return the predicted links of every document whose links are known.

    A document whose every pair is linked is left out: whatever is predicted there is true, at any similarity.
    """
    similarities: list[float] = []
    are_true: list[bool] = []
    documents: list[int] = []
    count = 0
    for number, (matrix, known) in enumerate(zip(matrices, links, strict=True)):
        if known is None or link_mask(matrix.shape, known).all():
            continue
        count += 1
        truth = {(int(sentence), int(image)) for sentence, image in known}
        for edge in predicted_links("", matrix, np.arange(len(matrix))):
            similarities.append(edge.similarity)
            are_true.append((edge.sentence, edge.image) in truth)
            documents.append(number)
    return Observations(
        similarities=np.array(similarities, np.float64),
        are_true=np.array(are_true, bool),
        documents=np.array(documents, np.int64),
        document_count=count,
    )


def fit_calibration(seen: Observations, *, dataset: str, split: str, method: Method | None = None) -> Calibration:
    """Return the calibration of some observations; `method` None: isotonic where there are enough, else Platt's.

    Raises:
        ValueError: there is no observation.
    """
    if not len(seen):
        raise ValueError("expected predicted links of documents with known links, found none")
    chosen = method or (Method.ISOTONIC if len(seen) >= ENOUGH_FOR_ISOTONIC else Method.PLATT)
    slope = intercept = 0.0
    knots: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    if chosen is Method.PLATT:
        slope, intercept = fit_sigmoid(seen.similarities, seen.are_true)
    else:
        knots = fit_isotonic(seen.similarities, seen.are_true)
    return Calibration(
        dataset=dataset,
        split=split,
        documents=seen.document_count,
        links=len(seen),
        true_links=int(seen.are_true.sum()),
        method=chosen,
        slope=slope,
        intercept=intercept,
        similarities=knots[0],
        probabilities=knots[1],
        points=precision_points(seen.similarities, seen.are_true),
    )


def fit_sigmoid(similarities: Float64, are_true: Bool) -> tuple[float, float]:
    """Return slope and intercept of the sigmoid of least cross-entropy, with Platt's (1999) smoothed targets.

    The targets (t + 1) / (t + 2) and 1 / (f + 2), of t true and f false links, keep it finite where a threshold tells
    them apart without error.
    """
    true = int(are_true.sum())
    false = len(are_true) - true
    targets = np.where(are_true, (true + 1) / (true + 2), 1 / (false + 2))
    middle, width = float(similarities.mean()), float(similarities.std()) or 1.0
    scaled = (similarities - middle) / width

    def cost(weights: Float64) -> tuple[float, Float64]:
        logits = weights[0] * scaled + weights[1]
        residual = 0.5 * (1 + np.tanh(logits / 2)) - targets
        value = np.mean(np.logaddexp(0, logits) - targets * logits)
        return float(value), np.array([np.mean(residual * scaled), np.mean(residual)])

    found = optimize.minimize(cost, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9})
    slope = float(found.x[0]) / width
    return slope, float(found.x[1]) - slope * middle


def fit_isotonic(similarities: Float64, are_true: Bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return knots of the non-decreasing curve of least squares; knots inside a flat stretch are left out."""
    values, places, counts = np.unique(similarities, return_inverse=True, return_counts=True)
    shares = np.bincount(places, weights=are_true) / counts
    curve = optimize.isotonic_regression(shares, weights=counts).x
    changes = np.flatnonzero(np.diff(curve)) if len(curve) > 1 else np.zeros(0, np.int64)
    kept = np.unique(np.concatenate([[0], changes, changes + 1, [len(curve) - 1]])).astype(np.int64)
    return tuple(values[kept].tolist()), tuple(np.clip(curve[kept], 0.0, 1.0).tolist())


def precision_points(similarities: Float64, are_true: Bool) -> tuple[PrecisionPoint, ...]:
    """Return thresholds from the one that keeps all links on, each more precise than all that keep more.

    A precision is a lower bound, by Clopper and Pearson (1934), at which the tail of each of the K thresholds tried is
    a K-th of 5% (Bonferroni): all bounds hold at once with 95% confidence, so that a threshold may be chosen by them.
    Links are taken as independent of one another, given their similarities. K is small and no label has a say in it:
    the thresholds tried keep all links, 1 / 1.25 of them, 1 / 1.25**2 and so on, down to `FEWEST_KEPT`.
    """
    values, places, counts = np.unique(similarities, return_inverse=True, return_counts=True)
    true = np.bincount(places, weights=are_true)
    kept, kept_true = (np.cumsum(each[::-1])[::-1] for each in (counts, true))
    steps = int(np.log(max(1.0, len(similarities) / FEWEST_KEPT)) / np.log(KEPT_RATIO) + 1e-9)
    sizes = np.append(len(similarities) / KEPT_RATIO ** np.arange(steps + 1), min(len(similarities), FEWEST_KEPT))
    tried = np.unique(len(kept) - 1 - np.searchsorted(kept[::-1], sizes - 1e-9))
    points: list[PrecisionPoint] = []
    for value, number, right in zip(values[tried], kept[tried], kept_true[tried], strict=True):
        precision = float(stats.beta.ppf((1 - CONFIDENCE) / len(tried), right, number - right + 1)) if right else 0.0
        if not points or precision > points[-1].precision:
            points.append(PrecisionPoint(float(value), precision, int(number)))
    return tuple(points)


def judge_calibration(calibration: Calibration, seen: Observations) -> CalibrationJudgement:
    """Return how a calibration does on other observations.

    Raises:
        ValueError: there is no observation.
    """
    probabilities = calibration.probability(seen.similarities)
    bins = reliability(probabilities, seen.are_true)
    return CalibrationJudgement(
        calibration=calibration,
        links=len(seen),
        bins=bins,
        brier=float(np.mean((probabilities - seen.are_true) ** 2)),
        error=100 * sum(row.links * abs(row.probability - row.share) for row in bins) / len(seen),
        kept=tuple(_kept(calibration, seen, wanted) for wanted in WANTED_PRECISIONS),
    )


def reliability(probabilities: Float64, are_true: Bool, *, bins: int = RELIABILITY_BINS) -> tuple[ReliabilityBin, ...]:
    """Return links in bins of about equal size by probability; equal probabilities share a bin.

    Raises:
        ValueError: there is no link.
    """
    if not len(probabilities):
        raise ValueError("expected links, found none")
    _, values, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts + 1) / 2  # mean place, from 0, of equal probabilities
    places = (middles * bins // len(probabilities)).astype(np.int64)[values]
    rows = []
    for place in np.unique(places):
        inside = places == place
        rows.append(
            ReliabilityBin(float(probabilities[inside].mean()), float(are_true[inside].mean()), int(inside.sum()))
        )
    return tuple(rows)


def _kept(calibration: Calibration, seen: Observations, wanted: float) -> KeptLinks:
    reaching = [point.similarity for point in calibration.points if point.precision >= wanted]
    if not reaching:
        return KeptLinks(wanted=wanted, threshold=None, precision=None, kept=0.0, links=0)
    is_kept = seen.similarities >= reaching[0]
    precision = None
    if is_kept.any():
        _, places = np.unique(seen.documents[is_kept], return_inverse=True)
        counts = np.bincount(places).astype(np.float64)
        true = np.bincount(places, weights=seen.are_true[is_kept]).astype(np.float64)
        precision = pooled_interval(100 * true, counts)
    return KeptLinks(
        wanted=wanted,
        threshold=reaching[0],
        precision=precision,
        kept=100 * float(is_kept.mean()),
        links=int(is_kept.sum()),
    )
