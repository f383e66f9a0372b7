"""The probability that something is right by one number, its similarity: a sigmoid or the best non-decreasing curve.

The results of a search have nothing but their similarity; links of a document have more (`calibration.py`), of which
`fit_sigmoid` makes a probability as well.

And thresholds that keep links of a wanted precision, tested document by document: links of one document are dependent.
Each document counts once: the precision of a threshold is the mean, over documents that have a link of at least the
threshold, of the share of such links that is true. A precision of all links together cannot be bounded by some
documents, since one that was not seen may have any number of links, all of them false.

For a wanted precision P, a document has X = (share of false links - (1 - P)) where it has a link of at least the
threshold, else 0. The threshold is proven where the upper bound of the mean of X over documents is below 0. The bound
is that of the gate (`intervals.py`), with one document more, whose links are all false. How often it misses and what it
finds: `benchmarks/precision.py`.

Thresholds follow from the similarities alone. They are tested from strict to loose, from several starts that divide the
error, and each start ends with its first failure (fixed sequence; Angelopoulos et al. 2025).
"""

from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import expit

from training.data.ragged import Bool, Float64, Floats, Int64
from training.metrics.intervals import sum_at_most_zero

ENOUGH_FOR_ISOTONIC = 1_000  # below it a sigmoid is the better fit (Niculescu-Mizil and Caruana 2005)
RIDGE = 1e-6  # of standardised slopes: features of few observations may say the same
ERROR = 0.05  # the probability that a threshold keeps less than the precision it was chosen for
FEWEST_KEPT = 20  # links; thresholds that keep fewer are not tested
KEPT_RATIO = 1.25  # of the links that two thresholds in a row keep
STARTS = 2
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityCurve:
    """The probability of being right by the similarity: isotonic where it has knots, else a sigmoid (Platt 1999).

    Attributes:
        observations: it was fitted to.
        right: of these, the right ones.
        slope: of the sigmoid in the similarity.
        intercept: of the sigmoid.
        similarities: rising knots of the isotonic curve.
        probabilities: the curve there, 0 to 1; linear in between, constant beyond.
    """

    observations: int
    right: int
    slope: float = 0.0
    intercept: float = 0.0
    similarities: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()

    def probability(self, similarities: Floats) -> Float64:
        """Return the probability, 0 to 1, that results of these similarities are right."""
        values = np.asarray(similarities, dtype=np.float64)
        if self.similarities:
            return np.interp(values, self.similarities, self.probabilities)
        return np.asarray(expit(self.slope * values + self.intercept), dtype=np.float64)


def fit_curve(similarities: Floats, are_right: Bool) -> ProbabilityCurve:
    """Return the curve of n results: isotonic where there are enough, else a sigmoid.

    >>> curve = fit_curve(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    >>> curve.probability(np.array([0.0, 1.0])).round(1).tolist()
    [0.2, 0.8]
    """
    values, count, right = np.asarray(similarities, np.float64), len(are_right), int(are_right.sum())
    if count >= ENOUGH_FOR_ISOTONIC:
        knots, probabilities = fit_isotonic(values, are_right)
        return ProbabilityCurve(observations=count, right=right, similarities=knots, probabilities=probabilities)
    slope, intercept = fit_sigmoid(values[:, None], are_right)
    return ProbabilityCurve(observations=count, right=right, slope=slope, intercept=intercept)


def fit_sigmoid(features_EF: Float64, are_true: Bool) -> tuple[float, ...]:
    """Return slopes and intercept of the sigmoid of least cross-entropy, with Platt's (1999) smoothed targets.

    The targets (t + 1) / (t + 2) and 1 / (f + 2), of t true and f false observations, keep it finite where a threshold
    tells them apart without error.

    >>> slope, intercept = fit_sigmoid(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([False, True, False, True]))
    >>> f"{slope:.3f} {intercept:.3f}"
    '0.000 0.000'
    """
    true = int(are_true.sum())
    false = len(are_true) - true
    targets = np.where(are_true, (true + 1) / (true + 2), 1 / (false + 2))
    middle, width = features_EF.mean(axis=0), features_EF.std(axis=0)
    width[width == 0] = 1.0
    scaled = np.column_stack([(features_EF - middle) / width, np.ones(len(are_true))])

    def cost(weights: Float64) -> tuple[float, Float64]:
        logits = scaled @ weights
        value = np.mean(np.logaddexp(0, logits) - targets * logits) + RIDGE * np.square(weights[:-1]).sum()
        gradient = (expit(logits) - targets) @ scaled / len(targets)
        gradient[:-1] += 2 * RIDGE * weights[:-1]
        return float(value), gradient

    fit = scipy.optimize.minimize(cost, np.zeros(scaled.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})
    slopes = fit.x[:-1] / width
    return (*slopes.tolist(), float(fit.x[-1] - slopes @ middle))


def fit_isotonic(similarities: Float64, are_true: Bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return knots of the non-decreasing curve of least squares; knots inside a flat stretch are left out.

    >>> fit_isotonic(np.array([0.1, 0.2, 0.2, 0.3]), np.array([False, True, False, True]))
    ((0.1, 0.2, 0.3), (0.0, 0.5, 1.0))
    """
    values, rows, counts = np.unique(similarities, return_inverse=True, return_counts=True)
    curve = scipy.optimize.isotonic_regression(np.bincount(rows, weights=are_true) / counts, weights=counts).x
    changes = np.flatnonzero(np.diff(curve)) if len(curve) > 1 else np.zeros(0, np.int64)
    kept = np.unique(np.concatenate([[0], changes, changes + 1, [len(curve) - 1]])).astype(np.int64)
    return tuple(values[kept].tolist()), tuple(np.clip(curve[kept], 0.0, 1.0).tolist())


@dataclass(frozen=True, slots=True)
class PrecisionPoint:
    """A threshold whose links have a precision, by the validation documents.

    Attributes:
        similarity: the threshold.
        precision: mean share of a document's links, 0 to 1, that is true at least, with 95% confidence.
        links: validation links that it keeps.
    """

    similarity: float
    precision: float
    links: int


def precision_points(similarities: Float64, are_true: Bool, documents: Int64, count: int) -> tuple[PrecisionPoint, ...]:
    """Return the loosest proven threshold of each of `LEVELS`, up to the first that has none.

    Each holds with 95% confidence for who chose the level beforehand, of documents like these.

    Args:
        similarities: of E predicted links.
        are_true: of each.
        documents: the document of each, 0 or more.
        count: of documents, those without a link among them.

    >>> scores = np.linspace(1, 0, 400)
    >>> precision_points(scores, scores > 0.5, np.arange(400), 400)[-1].similarity > 0.5
    True
    """
    if len(similarities) < FEWEST_KEPT:
        return ()
    thresholds = _thresholds(similarities)
    _, rows = np.unique(documents, return_inverse=True)
    is_kept = similarities[:, None] >= thresholds[None, :]
    links_DK, false_DK = np.zeros((2, count, len(thresholds)))
    np.add.at(links_DK, rows, is_kept)
    np.add.at(false_DK, rows, is_kept & ~are_true[:, None])
    shares_DK = false_DK / np.maximum(links_DK, 1)
    points: list[PrecisionPoint] = []
    for level in LEVELS:
        index = _loosest(links_DK > 0, shares_DK, level=level)
        if index is None:
            break
        points.append(PrecisionPoint(float(thresholds[index]), level, int(links_DK[:, index].sum())))
    return tuple(points)


def _thresholds(similarities: Float64) -> Float64:
    """Return thresholds, strict ones first, that keep 20 links or more, each about 1.25 times what the last keeps."""
    values, counts = np.unique(similarities, return_counts=True)
    kept = np.cumsum(counts[::-1])  # by falling value
    steps = int(np.log(len(similarities) / FEWEST_KEPT) / np.log(KEPT_RATIO) + 1e-9)
    sizes = np.append(len(similarities) / KEPT_RATIO ** np.arange(steps + 1), FEWEST_KEPT)
    thresholds: Float64 = values[::-1][np.unique(np.searchsorted(kept, sizes - 1e-9))]
    return thresholds


def _loosest(has_links_DK: Bool, shares_DK: Float64, *, level: float) -> int | None:
    """Return the loosest threshold that is proven to keep a precision, of shares of false links; None: none is."""
    count = shares_DK.shape[1]
    starts = np.unique(np.linspace(0, count, STARTS, endpoint=False).astype(np.int64)).tolist()
    spare_DK = (1 - level) * has_links_DK - shares_DK

    def is_proven(number: int) -> bool:
        return sum_at_most_zero(np.append(spare_DK[:, number], -level)) < ERROR / len(starts)

    ends = [next((number for number in range(start, count) if not is_proven(number)), count) for start in starts]
    return max((end - 1 for start, end in zip(starts, ends, strict=True) if end > start), default=None)
