"""What makes a document hard: its spread and its content against its AUC (Hessel 2019, 4.1), and whether models agree.

Spread is how different the images (sentences) of a document are from one another; content is what they are about. They
are measured on the data set's own vectors rather than on a model's, "to quantify aspects of the dataset itself"
(footnote 12). Shape suffixes: D documents, p predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Vectors = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
CONTENT_DIMENSIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """An ordinary least squares fit with an intercept.

    Attributes:
        name: what explains.
        documents: observations.
        predictors: independent predictors, without the intercept.
        r_squared: share of the variance explained, 0 to 1.
        adjusted_r_squared: the same, less what so many unrelated predictors would explain.
        f: F statistic of all predictors together.
        p: probability of such an F if none of them explained anything.
    """

    name: str
    documents: int
    predictors: int
    r_squared: float
    adjusted_r_squared: float
    f: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentAnalysis:
    """Spread of the scored documents, and what it explains of their AUC.

    Attributes:
        auc: D, percent.
        image_spread: D.
        text_spread: D.
        image_vectors: what the images were measured by.
        text_vectors: what the sentences were measured by.
        regressions: those that the number of documents allows.
    """

    auc: tuple[float, ...]
    image_spread: tuple[float, ...]
    text_spread: tuple[float, ...]
    image_vectors: str
    text_vectors: str
    regressions: tuple[Regression, ...]


def analyse_documents(
    auc: Sequence[float],
    images: Sequence[Vectors],
    texts: Sequence[Vectors],
    *,
    image_vectors: str,
    text_vectors: str,
) -> DocumentAnalysis:
    """Return the spread of documents and the regressions of their AUC on it, and on spread and content.

    Args:
        auc: of D documents.
        images: their images, m x v each.
        texts: their sentences, n x t each.
        image_vectors: name of the images' vectors.
        text_vectors: name of the sentences' vectors.
    """
    values = np.asarray(auc, dtype=np.float64)
    image_spread, text_spread = (np.array([spread(rows) for rows in side]) for side in (images, texts))
    both = np.stack([image_spread, text_spread], axis=1)
    candidates = [
        ("image spread", image_spread[:, None]),
        ("text spread", text_spread[:, None]),
        ("spread", both),
        ("spread + content", np.concatenate([both, content(images), content(texts)], axis=1)),
    ]
    fits = (regress(name, predictors, values) for name, predictors in candidates)
    return DocumentAnalysis(
        auc=tuple(values.tolist()),
        image_spread=tuple(image_spread.tolist()),
        text_spread=tuple(text_spread.tolist()),
        image_vectors=image_vectors,
        text_vectors=text_vectors,
        regressions=tuple(fit for fit in fits if fit is not None),
    )


def spread(vectors: Vectors) -> float:
    """Return the mean squared distance of n L2-normalised vectors to their centroid, 0 to 1; zero vectors stay zero."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(lengths > 0, lengths, 1.0)
    return float(((units - units.mean(axis=0)) ** 2).sum(axis=1).mean())


def content(documents: Sequence[Vectors], *, dimensions: int = CONTENT_DIMENSIONS) -> Float64:
    """Return D x at most `dimensions`: the mean vector of each document in its principal components."""
    pooled = np.stack([np.asarray(rows, np.float64).mean(axis=0) for rows in documents])
    centred = pooled - pooled.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    return np.asarray((left * sizes)[:, :dimensions], dtype=np.float64)


def regress(name: str, predictors: Vectors, values: Vectors) -> Regression | None:
    """Return the least squares fit of D values by D x p predictors and an intercept.

    None where no fit can be tested: the values are all equal, no predictor varies, or there are too few documents.
    """
    y = np.asarray(values, np.float64) - np.mean(values)
    x = np.asarray(predictors, np.float64) - np.mean(predictors, axis=0)
    scale = np.linalg.norm(x, axis=0)
    varies = scale > 1e-12 * np.maximum(1.0, np.abs(predictors).max(axis=0))
    solution, _, rank, _ = np.linalg.lstsq(x[:, varies] / scale[varies], y, rcond=None)
    total, rank = float(y @ y), int(rank)
    left_over = len(y) - 1 - rank
    if not rank or left_over < 1 or total == 0:
        return None
    residual = y - (x[:, varies] / scale[varies]) @ solution
    unexplained = float(residual @ residual)
    r_squared = 1 - unexplained / total
    f = (total - unexplained) / rank / (unexplained / left_over) if unexplained > 0 else float("inf")
    return Regression(
        name=name,
        documents=len(y),
        predictors=rank,
        r_squared=r_squared,
        adjusted_r_squared=1 - (1 - r_squared) * (len(y) - 1) / left_over,
        f=f,
        p=float(stats.f.sf(f, rank, left_over)),
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the rank correlation of two models' scores on the same documents; None where either does not vary.

    Raises:
        ValueError: they are not of the same number of documents.
    """
    if len(first) != len(second):
        raise ValueError(f"expected scores of the same documents, found {len(first)} and {len(second)}")
    ranks = [stats.rankdata(values) for values in (first, second)]
    if any(len(np.unique(row)) < 2 for row in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
