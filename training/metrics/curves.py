"""The probability that something is right by one number, its similarity: a sigmoid or the best non-decreasing curve.

The results of a search have nothing but their similarity; links of a document have more (`calibration.py`), of which
`fit_sigmoid` makes a probability as well.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import expit

from training.data.ragged import Bool, Float64, Floats

ENOUGH_FOR_ISOTONIC = 1_000  # below it a sigmoid is the better fit (Niculescu-Mizil and Caruana 2005)
RIDGE = 1e-6  # of standardised slopes: features of few observations may say the same


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

    fit = optimize.minimize(cost, np.zeros(scaled.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})
    slopes = fit.x[:-1] / width
    return (*slopes.tolist(), float(fit.x[-1] - slopes @ middle))


def fit_isotonic(similarities: Float64, are_true: Bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return knots of the non-decreasing curve of least squares; knots inside a flat stretch are left out.

    >>> fit_isotonic(np.array([0.1, 0.2, 0.2, 0.3]), np.array([False, True, False, True]))
    ((0.1, 0.2, 0.3), (0.0, 0.5, 1.0))
    """
    values, rows, counts = np.unique(similarities, return_inverse=True, return_counts=True)
    shares = np.bincount(rows, weights=are_true) / counts
    curve = optimize.isotonic_regression(shares, weights=counts).x
    changes = np.flatnonzero(np.diff(curve)) if len(curve) > 1 else np.zeros(0, np.int64)
    kept = np.unique(np.concatenate([[0], changes, changes + 1, [len(curve) - 1]])).astype(np.int64)
    return tuple(values[kept].tolist()), tuple(np.clip(curve[kept], 0.0, 1.0).tolist())
