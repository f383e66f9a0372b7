"""How well a similarity matrix finds the links of a document: AUROC and precision at C (Hessel 2019, 2).

Ties never depend on sort order: AUROC counts a tie half, precision takes its expected value over all orders of the tied
pairs. Everything is times 100. A document whose links are unknown, empty or complete cannot be scored: it is left out,
and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from training.evaluation.metrics.scores import DocumentScores, LinkScore, ScoreKind

Matrix = npt.NDArray[np.floating[Any]]
Links = npt.NDArray[np.integer[Any]] | Sequence[tuple[int, int]]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
LINKS_UNKNOWN, NO_LINK, FULLY_LINKED = "links unknown", "no link", "every pair linked"


def score(matrix: Matrix, links: Links) -> LinkScore:
    """Return the scores of an n x m matrix against its (sentence, image) links.

    Raises:
        ValueError: there is no link, or every pair is one.
    """
    linked = link_mask(matrix.shape, links).ravel()
    if linked.all() or not linked.any():
        raise ValueError(f"expected some linked and some unlinked pairs, found {linked.sum()} of {linked.size} linked")
    values = np.asarray(matrix, dtype=np.float64).ravel()
    precisions = (100 * expected_precision(values, linked, at=at) for at in (1, 5))
    return LinkScore(100 * roc_auc(values, linked), *precisions)


def score_documents(matrices: Iterable[Matrix], links: Iterable[Links | None]) -> DocumentScores:
    """Return the scores of the documents that can be scored, and count the others by reason."""
    scored: dict[int, LinkScore] = {}
    left_out = Counter({LINKS_UNKNOWN: 0, NO_LINK: 0, FULLY_LINKED: 0})
    for position, (matrix, known) in enumerate(zip(matrices, links, strict=True)):
        if known is None:
            left_out[LINKS_UNKNOWN] += 1
        elif len(known) == 0:
            left_out[NO_LINK] += 1
        elif link_mask(matrix.shape, known).all():
            left_out[FULLY_LINKED] += 1
        else:
            scored[position] = score(matrix, known)
    return DocumentScores(
        kind=ScoreKind.LINKS, documents=tuple(scored), scores=tuple(scored.values()), left_out=+left_out
    )


def link_mask(shape: tuple[int, ...], links: Links) -> Bool:
    """Return n x m: whether sentence and image are linked."""
    mask = np.zeros(shape, dtype=bool)
    pairs = np.asarray(links, dtype=np.int64).reshape(-1, 2)
    mask[pairs[:, 0], pairs[:, 1]] = True
    return mask


def roc_auc(values: Float64, linked: Bool) -> float:
    """Return the probability that a linked pair has a larger value than an unlinked one, a tie counting half."""
    positives = int(linked.sum())
    negatives = linked.size - positives
    _, rows, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2  # of each different value, from 1; the mean rank of those that tie
    rank_sum = float(ranks[rows][linked].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def expected_precision(values: Float64, linked: Bool, *, at: int) -> float:
    """Return the expected share of links among the `at` largest values, over all orders of equal values.

    Values above the last one that counts are in for sure; those equal to it share what is left. With fewer than `at`
    pairs, the share is of those there are.
    """
    count = min(at, values.size)
    last = np.partition(values, values.size - count)[values.size - count]
    above, tied = values > last, values == last
    share = (count - above.sum()) / tied.sum()
    return float(linked[above].sum() + share * linked[tied].sum()) / count
