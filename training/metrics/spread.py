"""What makes a document hard: its spread and its content against its AUC (Hessel 2019, 4.1), and whether models agree.

Spread is how different the images (sentences) of a document are from one another; content is what they are about. They
are measured on the data set's own vectors rather than on a model's, "to quantify aspects of the dataset itself"
(footnote 12). Shape suffixes: D documents, p predictors.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc

from training.data.ragged import Float64, Floats, require_finite, unit_rows
from training.metrics.intervals import Score

CONTENT_DIMENSIONS = 20


def analyse_documents(auc: Floats, images: Sequence[Floats], texts: Sequence[Floats]) -> list[Score]:
    """Return the regressions of documents' AUC on the spread and content of their images and texts that D allows.

    Args:
        auc: D.
        images: m x v vectors of each document's images.
        texts: n x w vectors of each document's sentences.

    Raises:
        UsageError: an AUC or a number of a vector is not finite.

    >>> vectors = [np.eye(2), np.ones((2, 2)), np.eye(2), np.ones((2, 2))]
    >>> first = analyse_documents(np.array([60.0, 90.0, 62.0, 88.0]), vectors, vectors)[0]
    >>> f"{first.group}: {first.metric} {first.value:.1f}"
    'image spread: r_squared 99.5'
    """
    for values, what in ((auc, "AUC of documents"), *((rows, "vectors of a document") for rows in (*images, *texts))):
        require_finite(values, what)
    spreads = np.array([[spread(rows) for rows in side] for side in (images, texts)]).T
    predictors = {
        "image spread": spreads[:, :1],
        "text spread": spreads[:, 1:],
        "spread": spreads,
        "spread + content": np.concatenate([spreads, content(images), content(texts)], axis=1),
    }
    return [score for name, columns in predictors.items() for score in regress(name, columns, auc)]


def spread(vectors: Floats) -> float:
    """Return the mean squared distance of n L2-normalised vectors to their centroid, 0 to 1.

    >>> spread(np.array([[2.0, 0.0], [0.5, 0.0]])), spread(np.eye(2))
    (0.0, 0.5)
    """
    units = unit_rows(vectors)
    return float(((units - units.mean(axis=0)) ** 2).sum(axis=1).mean())


def content(documents: Sequence[Floats], *, dimensions: int = CONTENT_DIMENSIONS) -> Float64:
    """Return D x at most `dimensions`: the mean vector of each document in its principal components.

    >>> content([np.array([[0.0], [2.0]]), np.array([[3.0]])]).shape
    (2, 1)
    """
    pooled = np.stack([np.asarray(rows, np.float64).mean(axis=0) for rows in documents])
    left, sizes, _ = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)
    return np.asarray((left * sizes)[:, :dimensions], dtype=np.float64)


def regress(name: str, predictors: Floats, values: Floats) -> list[Score]:
    """Return the least squares fit of D values by D x p predictors and an intercept; `name` is the group of its rows.

    R squared is the share of the variance explained; adjusted, less what so many unrelated predictors would explain. F
    tests all predictors together. No row where no fit can be tested: the values are all equal, no predictor varies, or
    there are too few documents.

    >>> fit = regress("x", np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 2.0, 2.0, 3.0]))
    >>> f"{fit[0].metric} {fit[0].value:.1f}"
    'r_squared 90.0'
    """
    y = np.asarray(values, np.float64) - np.mean(values)
    x = np.asarray(predictors, np.float64) - np.mean(predictors, axis=0)
    scale = np.linalg.norm(x, axis=0)
    varies = scale > 1e-12 * np.maximum(1.0, np.abs(predictors).max(axis=0))
    solution, _, rank, _ = np.linalg.lstsq(x[:, varies] / scale[varies], y, rcond=None)
    total, rank = float(y @ y), int(rank)
    left_over = len(y) - 1 - rank
    if not rank or left_over < 1 or total == 0:
        return []
    residual = y - (x[:, varies] / scale[varies]) @ solution
    unexplained = float(residual @ residual)
    r_squared = 1 - unexplained / total
    adjusted = 1 - (1 - r_squared) * (len(y) - 1) / left_over
    f = (total - unexplained) / rank / (unexplained / left_over) if unexplained > 0 else np.inf
    p = float(fdtrc(rank, left_over, f))
    return [
        Score("r_squared", 100 * r_squared, n=len(y), group=name),
        Score("adjusted_r_squared", 100 * adjusted, n=len(y), group=name),
        Score("predictors", float(rank), n=len(y), group=name, unit="predictors"),
        Score("f", float(f) if np.isfinite(f) else None, n=len(y), group=name, unit=f"F of {rank} predictors"),
        Score("p", p, n=len(y), group=name, unit="probability"),
    ]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the rank correlation of two models' scores on the same documents; None where either does not vary.

    Raises:
        ValueError: they are not of the same number of documents.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    if len(first) != len(second):
        raise ValueError(f"expected scores of the same documents, found {len(first)} and {len(second)}")
    if min(len(set(first)), len(set(second))) < 2:
        return None
    from scipy.stats import spearmanr  # half a second, which nothing else needs

    return float(spearmanr(first, second).statistic)
