"""Thresholds that keep links of a wanted precision, tested document by document: links of one document are dependent.

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

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.data.ragged import Bool, Float64, Int64
from training.metrics.intervals import sum_at_most_zero

ERROR = 0.05  # the probability that a threshold keeps less than the precision it was chosen for
FEWEST_KEPT = 20  # links; thresholds that keep fewer are not tested
KEPT_RATIO = 1.25  # of the links that two thresholds in a row keep
STARTS = 2
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)


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
