"""How well a similarity matrix finds the links of a document: AUROC and precision at C (Hessel 2019, 2).

Ties never depend on sort order: AUROC counts a tie half, precision takes its expected value over all orders of the tied
pairs. Everything is times 100. A document whose links are unknown, empty or complete cannot be scored: it is left out,
and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.floating[Any]]
Links = npt.NDArray[np.integer[Any]] | Sequence[tuple[int, int]]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkScore:
    """Scores of one document, 0 to 100."""

    auc: float
    precision_at_1: float
    precision_at_5: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkScores:
    """Scores of documents, and how many could not be scored.

    Attributes:
        documents: positions (in what was given) of the scored documents.
        scores: their scores.
        without_links: documents that are known to have no link.
        fully_linked: documents whose every pair is a link.
        unknown: documents whose links are not known.
    """

    documents: tuple[int, ...]
    scores: tuple[LinkScore, ...]
    without_links: int
    fully_linked: int
    unknown: int

    def table(self) -> Float64:
        """Return a row (AUC, precision at 1, at 5) per scored document."""
        rows = [(score.auc, score.precision_at_1, score.precision_at_5) for score in self.scores]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def mean(self) -> LinkScore | None:
        """Return the mean scores, or None where no document could be scored."""
        return LinkScore(*self.table().mean(axis=0).tolist()) if self.scores else None


def score(matrix: Matrix, links: Links) -> LinkScore:
    """Return the scores of an n x m matrix against its (sentence, image) links.

    Raises:
        ValueError: there is no link, or every pair is one.
    """
    linked = link_mask(matrix.shape, links).ravel()
    if linked.all() or not linked.any():
        raise ValueError(f"expected some linked and some unlinked pairs, found {linked.sum()} of {linked.size} linked")
    values = np.asarray(matrix, dtype=np.float64).ravel()
    return LinkScore(
        100 * area_under_curve(values, linked),
        100 * expected_precision(values, linked, at=1),
        100 * expected_precision(values, linked, at=5),
    )


def score_documents(matrices: Iterable[Matrix], links: Iterable[Links | None]) -> LinkScores:
    """Return the scores of documents in order, leaving out and counting those that have none (see `LinkScores`)."""
    tally = _Tally()
    for position, (matrix, known) in enumerate(zip(matrices, links, strict=True)):
        tally.add(position, matrix, known)
    return LinkScores(
        documents=tuple(tally.documents),
        scores=tuple(tally.scores),
        without_links=tally.without_links,
        fully_linked=tally.fully_linked,
        unknown=tally.unknown,
    )


def link_mask(shape: tuple[int, ...], links: Links) -> npt.NDArray[np.bool_]:
    """Return n x m: whether sentence and image are linked."""
    mask = np.zeros(shape, dtype=bool)
    pairs = np.asarray(links, dtype=np.int64).reshape(-1, 2)
    mask[pairs[:, 0], pairs[:, 1]] = True
    return mask


def area_under_curve(values: Float64, linked: npt.NDArray[np.bool_]) -> float:
    """Return the probability that a linked pair has a larger value than an unlinked one, a tie counting half."""
    positives = int(linked.sum())
    negatives = linked.size - positives
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2  # of each different value, from 1; the mean rank of those that tie
    rank_sum = float(ranks[place][linked].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def expected_precision(values: Float64, linked: npt.NDArray[np.bool_], *, at: int) -> float:
    """Return the expected share of links among the `at` largest values, over all orders of equal values.

    Values above the last one that counts are in for sure; those equal to it share the places that are left. With fewer
    than `at` pairs, the share is of those there are.
    """
    places = min(at, values.size)
    last = np.partition(values, values.size - places)[values.size - places]
    above, tied = values > last, values == last
    share = (places - above.sum()) / tied.sum()
    return float(linked[above].sum() + share * linked[tied].sum()) / places


@dataclass(slots=True)
class _Tally:
    documents: list[int] = field(default_factory=list)
    scores: list[LinkScore] = field(default_factory=list)
    without_links: int = 0
    fully_linked: int = 0
    unknown: int = 0

    def add(self, position: int, matrix: Matrix, links: Links | None) -> None:
        if links is None:
            self.unknown += 1
        elif len(links) == 0:
            self.without_links += 1
        elif link_mask(matrix.shape, links).all():
            self.fully_linked += 1
        else:
            self.documents.append(position)
            self.scores.append(score(matrix, links))
